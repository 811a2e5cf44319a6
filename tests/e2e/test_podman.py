"""Jobs in containers on a real cluster: pulled, saved, resumed, found again; and no secret
anywhere.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import processes  # found by conftest.py
from dlq.v1 import job_pb2
from dlq_client.line.connection import connect
from support.canaries import files_with, forms_of
from support.container_cluster import ContainerCluster
from support.podman_box import (
    PodmanStore,
    make_root_filesystem,
    needs_podman,
    podman_store,
    submitter_name,
)
from support.podman_images import trusted_registry
from support.proofs import proved
from support.small_registry import SmallRegistry, layer_of
from support.users_view import UsersView
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.podman, needs_podman]

CANARY = "canary-5d0c2b"
PASSWORD = "canary-91ee07"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallRegistry]:
    with trusted_registry(tmp_path, monkeypatch) as running:
        running.digest = running.put(
            "team/train", "1", layer_of(make_root_filesystem(tmp_path / "image"))
        )
        running.password = f"robot:{PASSWORD}"
        yield running


@pytest.fixture
def cluster(
    tmp_path: Path, store: PodmanStore, registry: SmallRegistry, request: pytest.FixtureRequest
) -> Iterator[ContainerCluster]:
    """Two nodes; a parameter names those that run processes only."""
    mine = tmp_path / "secrets/users" / submitter_name()
    mine.mkdir(parents=True)
    for name, content in (("registry", f"robot:{PASSWORD}"), ("token", CANARY)):
        (mine / name).write_text(content)
        (mine / name).chmod(0o600)
    try:
        with ContainerCluster(tmp_path, store, without=getattr(request, "param", ())) as running:
            yield running
        assert processes.belonging_to(tmp_path) == []
        assert store.containers() == []
    finally:
        processes.kill_all(tmp_path)


@pytest.fixture
def user(cluster: ContainerCluster) -> Iterator[UsersView]:
    with connect(home=cluster.home, patience_s=5.0) as connection:
        yield UsersView(cluster.dlq, connection)


def in_image(registry: SmallRegistry, *flags: str) -> list[str]:
    return ["--image", f"{registry.name}/team/train:1", "--image-secret", "registry", *flags]


def test_a_container_is_pulled_runs_with_what_it_was_given_and_no_secret_is_anywhere(
    user: UsersView, cluster: ContainerCluster, registry: SmallRegistry, store: PodmanStore
) -> None:
    data = cluster.root / "data"
    data.mkdir()
    (data / "set").write_text("seven")
    script = (
        "cat /data/set; echo; ls /run/secrets; wc -c < /run/secrets/token || cat "
        "/run/secrets/token "
        "> /dev/null; mount; env"
    )
    job = user.submit(
        *in_image(registry, "--mount", f"{data}:/data:ro", "--secret", "token"),
        *("--shm-size", "64MiB", "--gpus", "2", "--", "/bin/sh", "-c", script),
    )
    ended = user.wait_for_end(job)
    assert ended.state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    output = user.dlq("logs", job)
    assert output.startswith("seven\n")
    assert "token" in output
    assert "size=65536k" in output
    assert "DLQ_VIRTUAL_DEVICES=" in output
    told = [each["cause"] for each in user.events(job) if each["kind"] == "rank_preparing"]
    assert told[0] == f"waiting to pull {registry.name}/team/train:1"
    assert told[-1].startswith("pulled ")
    assert f"image: {registry.digest}" in user.dlq("show", job)
    shown = user.dlq("show", job, "--json") + user.dlq("show", job) + output
    shown += user.dlq("events", "--json")
    for secret in (CANARY, PASSWORD):
        assert not [form for form in forms_of(secret) if form in shown]
        places = [cluster.root / name for name in ("master", "e2e-a", "e2e-b", "handed")]
        assert files_with(secret, [*places, *cluster.root.glob("*.log"), store.at]) == []
    proved("secrets of a container", secrets=2, kinds=2, files=count_of(cluster.root), found=0)


def count_of(root: Path) -> int:
    """The files below it."""
    return sum(1 for path in root.rglob("*") if path.is_file())


def test_a_job_that_prints_its_secret_last_and_fails_tells_it_to_its_own_node_only(
    user: UsersView, cluster: ContainerCluster, registry: SmallRegistry
) -> None:
    script = "cat /run/secrets/token; echo; exit 3"
    job = user.submit(
        *in_image(registry, "--secret", "token", "--gpus", "1"), "--", "/bin/sh", "-c", script
    )
    assert user.wait_for_end(job).exit_code == 3, user.tale(job)
    assert "[secret]" in user.dlq("show", job)
    assert CANARY in user.dlq("logs", job), "it is the job's own output"
    places = [cluster.root / "master", *cluster.root.glob("*.log")]
    assert files_with(CANARY, places) == []


def test_what_cannot_be_pulled_is_the_users_mistake_and_says_so(
    user: UsersView, registry: SmallRegistry
) -> None:
    name = f"{registry.name}/no/such:1"
    job = user.submit("--image", name, "--image-secret", "registry", "--", "true")
    ended = user.wait_for_end(job)
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 127), user.tale(job)
    assert f"there is no image {name}" in user.dlq("logs", job)
    other = user.submit("--image", name, "--image-secret", "nobodys", "--", "true")
    assert user.wait_for_end(other).exit_code == 126
    assert "keeps no secret nobodys" in user.dlq("logs", other)


def test_a_container_saves_pauses_and_resumes_on_another_node_and_outlives_its_agent(
    user: UsersView, cluster: ContainerCluster, registry: SmallRegistry
) -> None:
    saved = cluster.root / "saved"
    script = (
        'if [ -n "$DLQ_RESUME_FROM" ]; then cat "$DLQ_RESUME_FROM"; exit 0; fi; '
        f"trap 'echo 41 > {saved}/step-41; exit 99' TERM; echo up; while :; do sleep 0.1; done"
    )
    job = user.submit(
        *in_image(registry, "--gpus", "8", "--checkpoint-dir", str(saved)),
        *("--checkpoint-marker", "step-*", "--", "/bin/sh", "-c", script),
    )
    (node,) = user.wait(
        job, lambda now: now.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING, "it runs"
    ).node_ids
    wait_until(lambda: "up" in user.dlq("logs", job), what="its first words")
    cluster.kill(node)
    cluster.start(node)
    wait_until(cluster.all_up, what="the agent's return", timeout_s=60)
    user.dlq("pause", job)
    user.wait(job, lambda now: not now.HasField("attempt_state"), "it is paused")
    assert (saved / "step-41").read_text() == "41\n"
    user.dlq("resume", job)
    ended = user.wait_for_end(job)
    assert ended.state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    assert user.dlq("logs", job).strip() == "41"
    assert user.show(job)["lost_gpu_seconds"] == 0


def test_a_memory_hog_is_told_apart_from_other_failures(
    user: UsersView, registry: SmallRegistry
) -> None:
    job = user.submit(*in_image(registry, "--mem", "64MiB", "--", "/bin/tail", "/dev/zero"))
    ended = user.wait_for_end(job)
    assert (ended.state, ended.end_reason) == (job_pb2.JOB_STATE_FAILED, "oom_host"), user.tale(job)


@pytest.mark.parametrize("cluster", [("e2e-a",)], indirect=True, ids=["one_node_without"])
def test_a_node_that_runs_no_containers_gets_no_job_with_an_image(
    user: UsersView, registry: SmallRegistry
) -> None:
    flags = ("--gpus", "8", "--", "/bin/sleep", "300")
    first = user.submit(*in_image(registry, *flags))
    running = user.wait(
        first, lambda now: now.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING, "it runs"
    )
    assert running.node_ids == ["e2e-b"]
    second = user.submit(*in_image(registry, "--gpus", "8", "--", "/bin/true"))
    wait_until(
        lambda: "of 2 nodes 1 run containers" in user.dlq("why", second), what="why it waits"
    )
    user.dlq("cancel", first)
    ended = user.wait_for_end(second)
    assert ended.state == job_pb2.JOB_STATE_COMPLETED, user.tale(second)
    assert [len(user.show(job)["attempts"]) for job in (first, second)] == [1, 1]


def test_a_gang_in_containers_has_a_process_for_each_gpu_and_names_the_one_that_fails(
    user: UsersView, registry: SmallRegistry
) -> None:
    # The last waits for the others to say theirs: they end with it.
    script = (
        'echo "rank $RANK of $WORLD_SIZE at $MASTER_PORT"; '
        '[ "$RANK" != 3 ] || { sleep 3; exit 7; }; sleep 600'
    )
    job = user.submit(
        *in_image(registry, "-N", "2", "--gpus-per-node", "2", "--launch", "per-gpu"),
        *("--", "/bin/sh", "-c", script),
    )
    ended = user.wait_for_end(job)
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_FAILED, 7), user.tale(job)
    assert "failed first: node rank 1 (rank 3)" in user.dlq("why", job)
    first = user.dlq("logs", "--rank", "0", job)
    assert first.startswith("rank 0 of 4 at ")


STEPS = """\
#!/bin/sh
#SBATCH --job-name=steps --nodes=2 --gpus-per-node=1 --ntasks-per-node=1 --output=/dev/null
echo script
srun -l sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME'
srun -n2 sh -c 'exit 3'
echo code $?
"""


def test_the_steps_of_a_script_reach_the_containers_of_all_nodes(
    user: UsersView, registry: SmallRegistry, tmp_path: Path
) -> None:
    script = tmp_path / "steps.slurm"
    script.write_text(STEPS)
    job = user.submit(*in_image(registry, "--compat", "slurm"), str(script))
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    lines = user.dlq("logs", "-n", "all", "--rank", "0", job).splitlines()
    nodes = user.show(job)["attempts"][0]["ranks"]
    names = [rank["node_id"] for rank in nodes]
    assert {"script", f"0: 0 of 2 on {names[0]}", f"1: 1 of 2 on {names[1]}", "code 3"} <= set(
        lines
    )
