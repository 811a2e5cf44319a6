"""Unmodified PyTorch in containers on four nodes: pushed off two of them, it ends on the others."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import processes  # found by conftest.py
from dlq.v1 import job_pb2
from dlq_client.connection import connect
from support.container_cluster import HOST_IMAGE, ROOT, ContainerCluster, load_host_image
from support.podman_box import PodmanStore, needs_podman, podman_store
from support.users_view import UsersView
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.podman, pytest.mark.torch, needs_podman]

VENV = ROOT / ".venv-torch"
TORCHRUN = VENV / "bin" / "torchrun"
EXAMPLES = ROOT / "examples"
SCRIPT = EXAMPLES / "torch" / "train_ddp.py"
# Slow enough that a command of `dlq` reaches it in the middle, on a busy machine too.
TRAINING = ("--steps", "400", "--hidden", "512", "--batch", "128", "--save-every", "25")
NODES = ("e2e-a", "e2e-b", "e2e-c", "e2e-d")
TWO_WHOLE_NODES = ("-N", "2", "--gpus-per-node", "8")


def read_only() -> tuple[Path, ...]:
    """What the container borrows of the host: libraries, the interpreter, PyTorch, the script."""
    interpreter = (VENV / "bin" / "python").resolve().parents[1]
    own = () if interpreter.is_relative_to("/usr") else (interpreter,)
    return (Path("/usr"), *own, VENV, EXAMPLES)


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    # podman takes no path of more than 50 characters: not in the directory that bears the test's name
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        load_host_image(made)
        yield made


@pytest.fixture
def cluster(tmp_path: Path, store: PodmanStore) -> Iterator[ContainerCluster]:
    """tiresias-las, and four agents with eight virtual GPUs each."""
    try:
        with ContainerCluster(
            tmp_path, store, threshold=4.0, nodes=NODES, mounts=read_only()
        ) as running:
            yield running
        assert processes.belonging_to(tmp_path) == []
        assert store.containers() == []
    finally:
        processes.kill_all(tmp_path)


@pytest.fixture
def user(cluster: ContainerCluster) -> Iterator[UsersView]:
    with connect(home=cluster.home, patience_s=5.0) as connection:
        yield UsersView(cluster.dlq, connection)


@pytest.fixture
def undisturbed(tmp_path: Path) -> Iterator[Path]:
    """The checkpoints of the same training by plain torchrun on this machine."""
    assert TORCHRUN.exists(), "make e2e makes the environment for PyTorch"
    checkpoints = tmp_path / "undisturbed"
    checkpoints.mkdir()
    words = [str(TORCHRUN), "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    with (
        (tmp_path / "undisturbed.txt").open("wb") as output,
        subprocess.Popen(
            [*words, "--checkpoint-dir", str(checkpoints), *TRAINING],
            cwd=tmp_path, env=plain, stdout=output, stderr=output,
        ) as run,
    ):  # fmt: skip
        try:
            yield checkpoints
        finally:
            run.terminate()


def test_a_gang_of_containers_is_preempted_and_goes_on_elsewhere_with_the_same_weights(
    user: UsersView, cluster: ContainerCluster, undisturbed: Path
) -> None:
    checkpoints = cluster.root / "checkpoints"
    mounts = [word for place in read_only() for word in ("--mount", f"{place}:{place}:ro")]
    cluster.dlq("admin", "node", "drain", "e2e-c", "e2e-d", "--reason", "kept for later")
    job = user.submit(
        "-J", "train-ddp", "--image", HOST_IMAGE, *mounts, *TWO_WHOLE_NODES,
        "--checkpoint-dir", str(checkpoints), "--checkpoint-marker", "ckpt-*.pt", "--",
        str(TORCHRUN), "--nproc-per-node", "1",
        str(SCRIPT), "--checkpoint-dir", str(checkpoints), *TRAINING,
    )  # fmt: skip
    user.wait(job, lambda now: now.HasField("checkpoint") and now.level > 0, "it saves, and sinks")

    # One that ranks higher takes both nodes and stays; then there is room on the two others.
    rival = user.submit(
        "--image", HOST_IMAGE, "--mount", "/usr:/usr:ro", *TWO_WHOLE_NODES, "--",
        "/bin/sleep", "600",
    )  # fmt: skip
    user.wait(rival, is_running, "the better-placed job runs")
    cluster.dlq("admin", "node", "undrain", "e2e-c", "e2e-d")
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    user.dlq("cancel", rival)
    user.wait_for_end(rival)

    wait_until((undisturbed / "final.sha256").exists, what="the undisturbed run", timeout_s=300.0)
    weights = (checkpoints / "final.sha256").read_text()
    assert weights == (undisturbed / "final.sha256").read_text()
    shown = user.show(job)
    assert shown["lost_gpu_seconds"] == 0
    first, second = shown["attempts"]
    assert (first["state"], first["stop_cause"]) == ("preempted", "preempt")
    assert [rank["node_id"] for rank in first["ranks"]] == ["e2e-a", "e2e-b"]
    assert (second["state"], second["stop_cause"]) == ("succeeded", None)
    assert [rank["node_id"] for rank in second["ranks"]] == ["e2e-c", "e2e-d"]
    resumed = [
        line for line in user.dlq("logs", "--rank", "all", job).splitlines() if "resumes" in line
    ]
    assert len(resumed) == 2, resumed


def is_running(job: job_pb2.Job) -> bool:
    return job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING
