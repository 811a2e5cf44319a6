"""A PyTorch job under torchrun is resized live, in containers."""

from pathlib import Path

import pytest

from support.container_cluster import ContainerCluster, borrowing
from support.live_trial import SETTINGS, grow_and_shrink
from support.podman_box import needs_podman
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.podman, pytest.mark.torch, needs_podman]


@pytest.fixture
def cluster(containers: ContainerCluster) -> ContainerCluster:
    return containers


# Two torchruns of one address and one process id, each in its container, are one and the same to
# the rendezvous.
@pytest.mark.parametrize(
    "container_options", [{"settings": SETTINGS, "own_addresses": True}], ids=["quick"]
)
def test_it_grows_and_shrinks_in_containers_and_does_each_step_once(
    user: UsersView, tmp_path: Path
) -> None:
    grow_and_shrink(user, tmp_path, *borrowing(), "--mount", f"{tmp_path}:{tmp_path}:rw")
