"""Which images go when nobody has used them for long, or when room is short. No podman."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dlq_nodeagent.runtimes.podman.clearing import Clearing
from dlq_nodeagent.runtimes.podman.client import PodmanFailed
from dlq_nodeagent.runtimes.podman.records import ImageRecords
from support.fake_clock import FakeClock

DAY = 86_400.0


@dataclass
class Store:
    """Images by id with their names; those of containers cannot be removed."""

    images: dict[str, list[str]] = field(default_factory=dict)
    of_containers: set[str] = field(default_factory=set)

    def ask(self, *words: str, timeout_s: float) -> str:
        if words[:2] == ("image", "inspect"):
            if words[-1] not in self.images:
                raise PodmanFailed("no such image", 125)
            return json.dumps(self.images[words[-1]])
        assert words[0] == "rmi"
        for what in words[1:]:
            self._remove(what)
        return ""

    def _remove(self, what: str) -> None:
        image_id = next(it for it, names in self.images.items() if what == it or what in names)
        names = self.images[image_id]
        if image_id in self.of_containers or (what == image_id and len(names) > 1):
            raise PodmanFailed("image is in use", 2)
        names[:] = [name for name in names if name != what]
        if what == image_id or not names:
            del self.images[image_id]


@dataclass
class Bench:
    store: Store
    clearing: Clearing
    clock: FakeClock

    def pulled(self, image_id: str, *names: str, days_ago: float) -> None:
        self.store.images[image_id] = list(names or (f"reg.example/{image_id}:1",))
        used_s = self.clock.now_s() - days_ago * DAY
        self.clearing.records.pulled(image_id, user="alice", with_secret=False, now_s=used_s)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    store, clock = Store(), FakeClock()
    clearing = Clearing(
        client=store,  # type: ignore[arg-type]
        records=ImageRecords(path=tmp_path / "images.json"),
        clock=clock,
        keep_s=7 * DAY,
    )
    return Bench(store, clearing, clock)


def test_what_no_job_has_used_for_so_long_goes_and_the_rest_stays(bench: Bench) -> None:
    bench.pulled("old", days_ago=7.1)
    bench.pulled("new", days_ago=6.9)
    bench.store.images["loaded"] = ["reg.example/loaded:1"]
    bench.clearing.remove_old()
    assert bench.store.images.keys() == {"new", "loaded"}
    assert [name for name, _ in bench.clearing.records.least_recently_used()] == ["new"]


@pytest.mark.parametrize(
    "keep",
    [
        lambda bench: setattr(bench.clearing, "in_use", lambda: frozenset({"old"})),
        lambda bench: bench.store.of_containers.add("old"),
        lambda bench: bench.store.images["old"].append("localhost/mine:1"),
    ],
    ids=["a rank has it", "a container has it", "an operator has named it"],
)
def test_what_somebody_has_stays(bench: Bench, keep: Callable[[Bench], None]) -> None:
    bench.pulled("old", days_ago=30.0)
    keep(bench)
    bench.clearing.remove_old()
    assert not bench.clearing.make_room()
    assert "old" in bench.store.images


def test_room_is_made_by_what_was_not_used_for_longest_one_at_a_time(bench: Bench) -> None:
    for image_id, days in (("b", 2.0), ("a", 3.0), ("c", 1.0)):
        bench.pulled(image_id, days_ago=days)
    bench.pulled("fresh", days_ago=0.001)
    bench.store.of_containers.add("a")
    assert bench.clearing.make_room()
    assert bench.store.images.keys() == {"a", "c", "fresh"}
    assert bench.clearing.make_room()
    assert not bench.clearing.make_room()
    assert bench.store.images.keys() == {"a", "fresh"}


def test_an_image_with_several_names_goes_with_all_of_them(bench: Bench) -> None:
    bench.pulled("old", "reg.example/a:1", "reg.example/a:latest", days_ago=30.0)
    bench.clearing.remove_old()
    assert bench.store.images == {}


def test_what_an_operator_has_removed_is_forgotten_and_makes_no_room(bench: Bench) -> None:
    bench.pulled("gone", days_ago=30.0)
    del bench.store.images["gone"]
    assert not bench.clearing.make_room()
    assert bench.clearing.records.least_recently_used() == []


def test_the_clearing_stops_when_the_agent_does(bench: Bench) -> None:
    bench.pulled("old", days_ago=30.0)
    bench.clearing.stop()
    bench.clearing.remove_old()
    assert "old" in bench.store.images
