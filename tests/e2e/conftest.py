"""The cluster of the demo, started for each test: real daemons and the real command on loopback."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "demo"))

import processes  # noqa: E402 - the examples are scripts, not packages
from cluster import Cluster  # noqa: E402
from dlq_client.connection import connect  # noqa: E402
from support.users_view import UsersView  # noqa: E402

THRESHOLD_GPU_S = 4.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One master under tiresias-las, and two agents with eight virtual GPUs each."""
    try:
        with Cluster(tmp_path, threshold=THRESHOLD_GPU_S, nodes=("e2e-a", "e2e-b")) as running:
            yield running
        assert processes.belonging_to(tmp_path) == []
    finally:
        processes.kill_all(tmp_path)


@pytest.fixture
def user(cluster: Cluster) -> Iterator[UsersView]:
    with connect(home=cluster.home, patience_s=5.0) as connection:
        yield UsersView(cluster.dlq, connection)
