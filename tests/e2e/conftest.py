"""The cluster of the demo, started for each test: real daemons and the real command on loopback."""

import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "demo"))

import processes  # noqa: E402 - the examples are scripts, not packages
from cluster import Cluster  # noqa: E402
from dlq_client.line.connection import connect  # noqa: E402
from support.container_cluster import (  # noqa: E402
    ContainerCluster,
    borrowed,
    load_host_image,
)
from support.framework_trial import Undisturbed  # noqa: E402
from support.podman_box import podman_store  # noqa: E402
from support.users_view import UsersView  # noqa: E402

THRESHOLD_GPU_S = 4.0
TWO_NODES = ("e2e-a", "e2e-b")
_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


def has_failed(request: pytest.FixtureRequest) -> bool:
    """Whether the test has: what it leaves then is no news, and would hide why."""
    return bool(request.node.stash.get(_FAILED, False))


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """One master under tiresias-las, and two agents with eight virtual GPUs each."""
    try:
        with Cluster(tmp_path, threshold=THRESHOLD_GPU_S, nodes=TWO_NODES) as running:
            yield running
        assert has_failed(request) or processes.belonging_to(tmp_path) == []
    finally:
        processes.kill_all(tmp_path)


@pytest.fixture
def container_options() -> dict[str, Any]:
    """What else is said of the cluster of `containers`."""
    return {}


@pytest.fixture
def containers(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    container_options: dict[str, Any],
) -> Iterator[ContainerCluster]:
    """The same with agents that run containers; a parameter names other nodes."""
    nodes = getattr(request, "param", TWO_NODES)
    # podman takes no path of more than 50 characters: not in the directory that bears the test's
    # name
    with podman_store(tmp_path_factory.mktemp("podman")) as store:
        load_host_image(store)
        try:
            with ContainerCluster(
                tmp_path,
                store,
                threshold=THRESHOLD_GPU_S,
                nodes=nodes,
                mounts=borrowed(),
                **container_options,
            ) as running:
                yield running
            if not has_failed(request):
                assert processes.belonging_to(tmp_path) == []
                assert store.containers() == []
        finally:
            processes.kill_all(tmp_path)


@pytest.fixture
def user(cluster: Cluster) -> Iterator[UsersView]:
    with connect(home=cluster.home, patience_s=5.0) as connection:
        yield UsersView(cluster.dlq, connection)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """What trainings end with when nobody disturbs them."""
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))
