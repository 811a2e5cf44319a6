"""A cluster of this release and one of a former one behind one door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Daemons
from support.two_clusters import TwoClusters, two_clusters
from support.two_releases import NEAR, NoHistory, Releases, former_release

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "integration/test_cli_many.py::test_a_cluster_of_a_former_release_gets_no_job_with_a_checkpoint"
    ),
]


@pytest.fixture(scope="module")
def two() -> Iterator[TwoClusters]:
    """Cluster b is of a former release."""
    try:
        former = {NEAR: former_release(NEAR)}
    except NoHistory as error:
        pytest.skip(str(error))
    kinds = {
        "a": lambda root: Daemons(root, ("n1",), twin=True),
        "b": lambda root: Releases(root, former, NEAR, ("n1",)),
    }
    with two_clusters(kinds) as clusters:
        yield clusters


def test_a_job_goes_to_the_cluster_of_a_former_release_and_is_known_by_its_name(
    two: TwoClusters,
) -> None:
    hand = two.submit("there", "--to", "b", "--within", "20s")
    assert two.jobs("there") == [hand["global_name"]]
    two.said("wait", hand["global_name"])
    assert two.said("logs", hand["global_name"]) == "there\n"


def test_a_waiting_job_moves_to_a_former_release_and_back(two: TwoClusters) -> None:
    for own, other in (("a", "b"), ("b", "a")):
        full = two.fill(own)
        given = ("--name", f"from-{own}", "--gpus", "1", "--work", "10m", "--parsable")
        waits = two.clusters[own].said("submit", *given, "--", "echo", "moved").strip()
        said = two.said("move", f"{own}:{waits}", "--anyway", "--within", "20s", "--parsable")
        assert said.startswith(f"{other}:")
        two.said("wait", said.strip())
        two.said("cancel", "--kill", "--wait", f"{own}:{full}")


def test_a_running_job_never_moves_between_releases_that_would_lose_its_work(
    two: TwoClusters, tmp_path: Path
) -> None:
    for own in ("a", "b"):
        until = tmp_path / own
        job = two.clusters[own].said(*two.saving(f"stays-{own}", until)).strip()
        two.begun(f"{own}:{job}")
        said = two.dlq("move", f"{own}:{job}", "--anyway", "--within", "20s")
        told = said.err
        assert ("does not know" if own == "a" else "without the checkpoint") in told, told
        assert "running" in two.said("status", f"{own}:{job}")
        until.touch()
        two.said("wait", f"{own}:{job}")
