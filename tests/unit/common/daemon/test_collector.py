"""New objects are looked at by the clock, before they are many; all objects the more rarely the
longer that takes.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from dlq_common.daemon.collector import ALL_EVERY_S, ALL_SHARE, DAY_S, NEVER, NEW_EVERY_S, Collector
from support.fake_clock import FakeClock


@pytest.fixture(autouse=True)
def _as_a_daemon_leaves_it() -> Iterator[None]:
    """Python itself looks at no object here."""
    threshold = gc.get_threshold()
    gc.collect()
    gc.set_threshold(NEVER)
    yield
    gc.set_threshold(*threshold)


class Looks:
    """The looks so far: the generation and the objects of each. An object takes a microsecond."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.at: list[int] = []
        self.sizes: list[int] = []

    def note(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self.at.append(facts["generation"])
            young = range(min(2, facts["generation"] + 1))
            self.sizes.append(sum(len(gc.get_objects(generation=each)) for each in young))
            self.clock.advance(self.sizes[-1] * 1e-6)


@pytest.fixture
def looks() -> Iterator[Looks]:
    found = Looks()
    gc.callbacks.append(found.note)
    yield found
    gc.callbacks.remove(found.note)


def test_new_objects_are_looked_at_by_the_clock(looks: Looks) -> None:
    collector = Collector(looks.clock.boottime_s)
    for _ in range(10):
        for _ in range(3):
            collector.turned()
        looks.clock.advance(NEW_EVERY_S)
    assert looks.at == [0] * 10


def test_objects_that_take_the_place_of_others_never_gather(looks: Looks) -> None:
    collector = Collector(looks.clock.boottime_s)
    beats = {number: [number] for number in range(20_000)}
    collector.turned()
    collector.turned()
    looks.clock.advance(NEW_EVERY_S)
    collector.turned()  # all of them are old now
    begun = len(looks.sizes)
    for turn in range(60):
        for number in range(turn % 20 * 1_000, turn % 20 * 1_000 + 1_000):
            beats[number] = [number]  # a list goes for each that comes
        looks.clock.advance(NEW_EVERY_S)
        collector.turned()
    assert looks.at[begun:].count(1) >= 10
    assert max(looks.sizes[begun:]) < 6_000


@pytest.mark.parametrize("took_s", [0.001, 0.6, 10.0])
def test_a_look_at_all_comes_the_more_rarely_the_longer_it_takes(
    took_s: float, looks: Looks
) -> None:
    clock, waits = FakeClock(), list[float]()

    def tell_s() -> float:
        clock.advance(took_s)
        return clock.boottime_s()

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Collector(tell_s).look_at_all(pause))
    after_s = min(max(ALL_EVERY_S, took_s * ALL_SHARE), DAY_S)
    assert waits == [ALL_EVERY_S, pytest.approx(after_s), pytest.approx(after_s)]
    assert looks.at.count(2) == 2
