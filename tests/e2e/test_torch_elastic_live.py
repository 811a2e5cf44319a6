"""A PyTorch job under torchrun is resized live, by processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.live_trial import NODES, SETTINGS, grow_and_shrink, grow_to_where_it_fails
from support.users_view import UsersView

from cluster import Cluster  # isort: skip  # the examples are scripts, not packages

pytestmark = [pytest.mark.e2e, pytest.mark.torch]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=SETTINGS, nodes=NODES) as running:
        yield running


def test_it_grows_and_shrinks_while_it_runs_and_does_each_step_once(
    user: UsersView, tmp_path: Path
) -> None:
    grow_and_shrink(user, tmp_path)


def test_it_does_so_too_while_all_agents_are_killed_in_the_middle_of_each_resize(
    user: UsersView, cluster: Cluster, tmp_path: Path
) -> None:
    def kill_all() -> None:
        for name in NODES:
            cluster.kill(name)
        for name in NODES:
            cluster.start(name)

    grow_and_shrink(user, tmp_path, disturb=kill_all)


def test_a_job_that_fails_only_where_it_has_grown_to_goes_on_without_that_node(
    user: UsersView, tmp_path: Path
) -> None:
    grow_to_where_it_fails(user, tmp_path)
