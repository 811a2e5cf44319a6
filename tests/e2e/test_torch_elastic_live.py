"""A PyTorch job under torchrun is resized live, by processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.live_trial import NODES, SETTINGS, train_live
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
    train_live(user, tmp_path)
