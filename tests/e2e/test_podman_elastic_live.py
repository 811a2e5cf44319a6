"""A PyTorch job under torchrun is resized live, in containers."""

from pathlib import Path

import pytest

from support.container_cluster import ContainerCluster, borrowing
from support.live_trial import SETTINGS, train_live
from support.podman_box import needs_podman
from support.users_view import UsersView

pytestmark = [pytest.mark.e2e, pytest.mark.podman, pytest.mark.torch, needs_podman]


@pytest.fixture
def cluster(containers: ContainerCluster) -> ContainerCluster:
    return containers


@pytest.mark.parametrize("container_settings", [SETTINGS], ids=["quick"])
def test_it_grows_and_shrinks_in_containers_and_does_each_step_once(
    user: UsersView, tmp_path: Path
) -> None:
    train_live(user, tmp_path, *borrowing(), "--mount", f"{tmp_path}:{tmp_path}:rw")
