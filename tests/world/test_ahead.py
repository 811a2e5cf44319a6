"""What a standby builds ahead is what a start builds, in the histories of whole worlds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from dlq_master.ahead import Ahead
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.state import BuiltAhead
from dlq_master.control.config import MasterConfig
from dlq_master.control.jobs.state import window_of
from dlq_master.control.jobs.waits import Waits
from dlq_master.control.read_model.published import Published
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.store.batch import Batch, Loaded
from support.extent import LONG
from support.memory_store import MemoryStore
from support.same_state import differences, facts_of_start
from world.cast.world import World
from world.seeds import quiet
from world.stage.plot import draw

FEW, MANY, FULL = (3, 8, 25), 20, 400
FOLLOWS, TAKEOVERS = 0.2, 0.04  # of the batches on disk


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


class Follower:
    """A standby that looks after some batches, and takes over after some of them."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, draw(seed))
        self.config: MasterConfig = next(iter(self.world.masters.values())).config
        self.ahead = Ahead(self.config)
        self.takeovers = 0
        self.differs: list[str] = []
        self._chance = random.Random(seed)
        self._told: Callable[[Batch, str], None] = self.world.disk.written
        self.world.disk.written = self._written

    def _written(self, batch: Batch, writer: str) -> None:
        self._told(batch, writer)
        if self._chance.random() < FOLLOWS:
            self.ahead.follow(self._loaded())
        if self._chance.random() < TAKEOVERS and not self.differs:
            loaded = self._loaded()
            built = self.ahead.taken(loaded)
            if built is not None:
                self.takeovers += 1
                self.differs = compared(self.config, loaded, built, self.world.disk.rows)

    def _loaded(self) -> Loaded:
        return self.world.disk.rows.load(window_of(self.config))


def compared(
    config: MasterConfig, loaded: Loaded, built: BuiltAhead, rows: MemoryStore
) -> list[str]:
    """Where a master that begins with what was built ahead differs from one that builds it."""
    now_s = loaded.last_time_s + 1.0
    found: list[Any] = []
    for ahead in (None, built):
        state, first = start(config, loaded, now_s, ahead=ahead)
        written = (first.meta, first.events, first.jobs, first.changes)
        found.append((written, facts_of_start(state, Published(state, rows))))
    return differences(*found)


def followed(seeds: Iterator[int]) -> tuple[int, int]:
    """How many takeovers were compared, and how often all was built anew."""
    takeovers = builds = 0
    for seed in seeds:
        follower = Follower(seed)
        follower.world.run()
        assert not follower.differs, (seed, follower.differs)
        takeovers += follower.takeovers
        builds += follower.ahead.builds
    return takeovers, builds


def test_what_is_built_ahead_is_what_a_start_builds() -> None:
    takeovers, _ = followed(iter(FEW))
    assert takeovers >= len(FEW)


@pytest.mark.long("world/test_ahead.py::test_what_is_built_ahead_is_what_a_start_builds")
def test_what_is_built_ahead_is_what_a_start_builds_in_many_worlds() -> None:
    takeovers, _ = followed(iter(range(100, 100 + (FULL if LONG else MANY))))
    assert takeovers >= MANY


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (Waits, "renew", lambda self, job_id, job, row: None),
        (Cluster, "reposition", lambda self: None),
        (Cluster, "relearn_from", lambda self, other: None),
    ],
    ids=["waits", "positions", "lessons"],
)
def test_the_comparison_sees_what_is_left_out(owner: type, name: str, instead: Any) -> None:
    with patch.object(owner, name, instead), pytest.raises(AssertionError):
        followed(iter(FEW))
