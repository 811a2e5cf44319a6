"""Enums of the model pass from process to process in every release of Python, and nothing comes
with them.
"""

from __future__ import annotations

import importlib
import pickletools
import pkgutil
from collections.abc import Callable, Iterator
from enum import Enum

import pytest

import dlq_master.model
from dlq_master.model.cluster.frozen import freeze
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import JobState
from dlq_master.model.view import View
from dlq_master.planner.snapshot import ROOM, Unreadable, dumps, loads, read, take
from support.builders import World, a_waiting_job

Reduction = Callable[[Enum, int], object]

# What `Enum.__reduce_ex__` gives in each release of Python from 3.11 on.
REDUCTIONS: dict[str, Reduction] = {
    "3.11.2": lambda member, _: (getattr, (type(member), member.name)),
    "3.11.4": lambda member, _: (type(member), (member.value,)),
    "by name": lambda member, _: member.name,
}


@pytest.fixture(params=REDUCTIONS)
def reduction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Enums reduce as in that release, whichever one runs the test."""
    for kind in (Enum, *enums(Enum)):
        if "__reduce_ex__" in vars(kind):
            monkeypatch.setattr(kind, "__reduce_ex__", REDUCTIONS[request.param])
    return str(request.param)


def enums(of: type[Enum]) -> Iterator[type[Enum]]:
    for kind in of.__subclasses__():
        yield kind
        yield from enums(kind)


def enums_of_the_model() -> list[type[Enum]]:
    for module in pkgutil.walk_packages(dlq_master.model.__path__, ROOM):
        importlib.import_module(module.name)
    return [kind for kind in enums(Enum) if kind.__module__.startswith(ROOM)]


@pytest.mark.usefixtures("reduction")
def test_every_enum_of_the_model_is_read_again() -> None:
    kinds = enums_of_the_model()
    assert {JobState, Band} <= set(kinds)
    for kind in kinds:
        for member in kind:
            (again,) = loads(dumps((member,)))
            assert again is member


@pytest.mark.usefixtures("reduction")
def test_a_snapshot_is_read_again() -> None:
    world = World("dlq", nodes=2).submit(a_waiting_job(1, 1), a_waiting_job(2, 8)).decide()
    shot = read(take(View(world.cluster, world.now_s), world.policy))
    assert shot.state.jobs == freeze(world.cluster).jobs
    assert shot.state.attempts == freeze(world.cluster).attempts


@pytest.mark.usefixtures("reduction")
def test_a_member_is_written_as_its_class_and_its_value() -> None:
    data = dumps((JobState.QUEUED, Band.SPOT))
    written = [argument for code, argument, _ in pickletools.genops(data) if argument is not None]
    assert "getattr" not in written
    assert {"JobState", JobState.QUEUED.value, "Band", Band.SPOT.value} <= set(written)


class Foreign(Enum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [Foreign.ONE, getattr, (JobState.QUEUED, Foreign)],
    ids=["an enum of no model", "a function", "a class of no model"],
)
def test_an_enum_from_elsewhere_is_refused(value: object) -> None:
    with pytest.raises(Unreadable, match="is no value of the model"):
        loads(dumps(value))


def test_a_value_that_no_member_has_is_refused() -> None:
    forged = dumps(JobState.QUEUED).replace(JobState.QUEUED.value.encode(), b"absent")
    with pytest.raises(Unreadable):
        loads(forged)
