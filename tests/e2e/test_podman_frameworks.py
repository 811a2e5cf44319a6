"""Lightning and transformers in containers: taken off their GPUs and resumed as on a bare node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import processes  # found by conftest.py
from dlq_client.connection import connect
from support.container_cluster import HOST_IMAGE, ContainerCluster, load_host_image
from support.framework_trial import EXAMPLES, PYTHON, TRAINING, Trained, Undisturbed
from support.podman_box import needs_podman, podman_store
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.podman, pytest.mark.frameworks, needs_podman]


def borrowed() -> tuple[Path, ...]:
    """What the container takes from the host: libraries, the interpreter, the frameworks, the script."""
    interpreter = PYTHON.resolve().parents[1]
    own = () if interpreter.is_relative_to("/usr") else (interpreter,)
    return (Path("/usr"), *own, PYTHON.parents[1], EXAMPLES.parent)


@pytest.fixture
def cluster(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerCluster]:
    """tiresias-las, and two agents that run containers."""
    with podman_store(tmp_path_factory.mktemp("podman")) as store:
        load_host_image(store)
        try:
            with ContainerCluster(tmp_path, store, threshold=4.0, mounts=borrowed()) as running:
                yield running
            assert processes.belonging_to(tmp_path) == []
            assert store.containers() == []
        finally:
            processes.kill_all(tmp_path)


@pytest.fixture
def user(cluster: ContainerCluster) -> Iterator[UsersView]:
    with connect(home=cluster.home, patience_s=5.0) as connection:
        yield UsersView(cluster.dlq, connection)


@pytest.mark.parametrize(
    ("preset", "script", "more", "code"),
    [
        ("lightning", "lightning_digits.py", ("--ntasks-per-node", "1"), 99),
        ("hf", "hf_digits.py", (), 0),
    ],
)
def test_in_a_container_it_saves_and_ends_with_the_same_weights(
    cluster: ContainerCluster,
    user: UsersView,
    preset: str,
    script: str,
    more: tuple[str, ...],
    code: int,
) -> None:
    out = cluster.root / "out"
    out.mkdir()
    mounts = [word for place in borrowed() for word in ("--mount", f"{place}:{place}:ro")]
    with Undisturbed(cluster.root / "undisturbed", script, *TRAINING) as undisturbed:
        trained = Trained(
            user,
            user.submit(
                "--image", HOST_IMAGE, *mounts, "--gpus", "8", *more,
                "--checkpoint-preset", preset, "--checkpoint-dir", str(out), "--",
                str(PYTHON), str(EXAMPLES / script), "--out", str(out), *TRAINING,
            ),
        )  # fmt: skip
        trained.wait_for_start(1)
        trained.push_away()
        trained.wait_for_start(2)
        shown = trained.end()
        assert (out / "final.sha256").read_text() == undisturbed.digest()

    assert shown["lost_gpu_seconds"] == 0
    assert trained.attempts() == [("preempted", "preempt", code), ("succeeded", None, 0)]
    first, second = trained.begins()
    assert 0 == first < second
