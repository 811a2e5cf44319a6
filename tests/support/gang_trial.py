"""A data-parallel training in containers, pushed off two of four nodes: it goes on on the
others.
"""

from dlq.v1 import job_pb2
from support.container_cluster import ContainerCluster, borrowing
from support.framework_trial import Trained, Training, Undisturbed, make_out
from support.users_view import UsersView

FOUR_NODES = ("e2e-a", "e2e-b", "e2e-c", "e2e-d")
TWO_WHOLE_NODES = ("-N", "2", "--gpus-per-node", "8")

# torchrun sets this for several processes of a node, as in the undisturbed run, and not for one.
ONE_THREAD = ("--env", "OMP_NUM_THREADS=1")


def train_on_other_nodes(
    user: UsersView,
    cluster: ContainerCluster,
    undisturbed: Undisturbed,
    training: Training,
    saves: tuple[str, ...],
    workers: int,
) -> None:
    """One process on each of two nodes by torchrun, `workers` DataLoader workers in each;
    preempted, moved, and at the end the weights of an undisturbed run. `saves` says what counts as
    saved.
    """
    out, unhurried = make_out(cluster.root)
    options = ("--workers", str(workers))
    cluster.dlq("admin", "node", "drain", *FOUR_NODES[2:], "--reason", "kept for later")
    words = training.command(
        out, *options, "--unhurried-while", str(unhurried), torchrun=("--nproc-per-node", "1")
    )
    job = user.submit(
        *borrowing(),
        *TWO_WHOLE_NODES,
        *saves,
        "--checkpoint-dir",
        str(out),
        *ONE_THREAD,
        "--",
        *words,
    )
    trained = Trained(user, job, unhurried=unhurried)
    trained.wait_for_start(1)
    trained.wait_until_it_sinks()

    # One that ranks higher takes both nodes and stays; then there is room on the two others.
    rival = user.submit(*borrowing(), *TWO_WHOLE_NODES, "--", "/bin/sleep", "infinity")
    user.wait(rival, _is_running, "the better-placed job runs")
    trained.hurry()
    cluster.dlq("admin", "node", "undrain", *FOUR_NODES[2:])
    shown = trained.end()
    user.dlq("cancel", rival)
    user.wait_for_end(rival)

    assert shown["lost_gpu_seconds"] == 0
    first, second = shown["attempts"]
    assert (first["state"], first["stop_cause"]) == ("preempted", "preempt")
    assert (second["state"], second["stop_cause"]) == ("succeeded", None)
    assert _nodes(first) == list(FOUR_NODES[:2])
    assert _nodes(second) == list(FOUR_NODES[2:])
    began, resumed = trained.begins()
    assert 0 == began < resumed
    assert (out / "final.sha256").read_text() == undisturbed.digest(training, ranks=2)


def _nodes(attempt: dict[str, object]) -> list[str]:
    ranks = attempt["ranks"]
    assert isinstance(ranks, list)
    return [rank["node_id"] for rank in ranks]


def _is_running(job: job_pb2.Job) -> bool:
    return job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING
