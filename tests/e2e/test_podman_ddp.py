"""Unmodified PyTorch in containers on four nodes: pushed off two of them, it ends on the others."""

import pytest

from support.container_cluster import ContainerCluster
from support.framework_trial import PLAIN, Undisturbed
from support.gang_trial import FOUR_NODES, train_on_other_nodes
from support.podman_box import needs_podman
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.podman, pytest.mark.torch, needs_podman]


@pytest.fixture
def cluster(containers: ContainerCluster) -> ContainerCluster:
    return containers


@pytest.mark.parametrize("containers", [FOUR_NODES], indirect=True, ids=["four_nodes"])
@pytest.mark.parametrize("workers", [0, 16])
def test_a_gang_of_containers_is_preempted_and_goes_on_elsewhere_with_the_same_weights(
    user: UsersView, cluster: ContainerCluster, undisturbed: Undisturbed, workers: int
) -> None:
    saves = ("--checkpoint-preset", "torchrun", "--checkpoint-marker", "ckpt-*.pt")
    train_on_other_nodes(user, cluster, undisturbed, PLAIN, saves, workers)
