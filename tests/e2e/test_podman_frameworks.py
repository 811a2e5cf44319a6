"""Lightning and transformers in containers: taken off their GPUs and resumed as on a bare node."""

import pytest

from support.container_cluster import ContainerCluster, borrowing
from support.framework_trial import HF, LIGHTNING, Trained, Training, Undisturbed, make_out
from support.gang_trial import FOUR_NODES, train_on_other_nodes
from support.podman_box import needs_podman
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.podman, pytest.mark.frameworks, needs_podman]


@pytest.fixture
def cluster(containers: ContainerCluster) -> ContainerCluster:
    return containers


@pytest.mark.parametrize(
    ("preset", "training", "more", "code"),
    [
        pytest.param("lightning", LIGHTNING, ("--ntasks-per-node", "1"), 99, id="lightning"),
        pytest.param("hf", HF, (), 0, id="hf"),
    ],
)
def test_in_a_container_it_saves_and_ends_with_the_same_weights(
    cluster: ContainerCluster,
    user: UsersView,
    undisturbed: Undisturbed,
    preset: str,
    training: Training,
    more: tuple[str, ...],
    code: int,
) -> None:
    out, unhurried = make_out(cluster.root)
    job = user.submit(
        *borrowing(), "--gpus", "8", *more, "--checkpoint-preset", preset,
        "--checkpoint-dir", str(out), "--",
        *training.command(out, "--unhurried-while", str(unhurried)),
    )  # fmt: skip
    trained = Trained(user, job, unhurried=unhurried)
    trained.wait_for_start(1)
    trained.push_away()
    trained.hurry()
    shown = trained.end()

    assert shown["lost_gpu_seconds"] == 0
    assert trained.attempts() == [("preempted", "preempt", code), ("succeeded", None, 0)]
    first, second = trained.begins()
    assert 0 == first < second
    assert (out / "final.sha256").read_text() == undisturbed.digest(training)


@pytest.mark.parametrize("containers", [FOUR_NODES], indirect=True, ids=["four_nodes"])
@pytest.mark.parametrize(
    ("training", "saves"),
    [
        pytest.param(HF, ("--checkpoint-preset", "hf"), id="hf"),
        pytest.param(
            LIGHTNING,
            ("--checkpoint-preset", "torchrun", "--checkpoint-marker", "step-*.ckpt"),
            id="lightning",
        ),
    ],
)
def test_containers_on_two_nodes_go_on_on_two_others_with_the_same_weights(
    cluster: ContainerCluster,
    user: UsersView,
    undisturbed: Undisturbed,
    training: Training,
    saves: tuple[str, ...],
) -> None:
    train_on_other_nodes(user, cluster, undisturbed, training, saves, workers=16)
