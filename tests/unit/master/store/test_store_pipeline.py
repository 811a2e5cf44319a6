"""A turn on PostgreSQL goes out in one piece, and also by a psycopg that is made otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg
import pytest

from dlq_master.store.postgres.line import WRITER, PostgresLine, PostgresPlace
from support.postgres_site import postgres_site
from support.postgres_store import begin_anew


@pytest.fixture(scope="module")
def place() -> Iterator[PostgresPlace]:
    with postgres_site() as site:
        made = PostgresPlace(site.primary.dsn, tls="disable", allow_asynchronous=True)
        begin_anew(made)
        yield made


@pytest.fixture
def line(place: PostgresPlace) -> Iterator[PostgresLine]:
    made = PostgresLine(place, WRITER)
    yield made
    made.own("DELETE FROM meta")
    made.close()


class Counted:
    """How often psycopg has sent, and looked for answers."""

    times = 0

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        former: Any = getattr(psycopg.Pipeline, "_communicate_gen")  # noqa: B009 - psycopg's own

        def communicate(pipeline: psycopg.Pipeline) -> Any:
            self.times += 1
            return former(pipeline)

        patch.setattr(psycopg.Pipeline, "_communicate_gen", communicate)


def a_turn(line: PostgresLine) -> None:
    line.own("BEGIN")
    for number in range(20):
        line.execute("INSERT INTO meta VALUES (?, 'told')", [f"row {number}"])
    line.own("COMMIT")


def rows(line: PostgresLine) -> int:
    (found,) = line.own("SELECT count(*) FROM meta").fetchone() or (0,)
    return int(found)


def test_a_turn_goes_out_in_one_piece(line: PostgresLine, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    with line.pipelined():
        a_turn(line)
    assert counted.times == 1
    assert rows(line) == 20


class OtherPipeline:
    """The pipeline of a psycopg that has other parts, and takes no new ones."""

    __slots__ = ("_communicate_gen", "command_queue")
    lacks: ClassVar[str]

    def __init__(self) -> None:
        for name in self.__slots__:
            if name != self.lacks:
                setattr(self, name, ())


@pytest.mark.parametrize("lacks", ["command_queue", "_communicate_gen", "__dict__"])
def test_a_turn_goes_out_by_another_psycopg_too(
    line: PostgresLine, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    real: psycopg.Connection[Any] = getattr(line, "_line")  # noqa: B009 - psycopg's own

    @contextmanager
    def pipeline() -> Iterator[OtherPipeline]:
        with former():
            yield OtherPipeline()

    former = real.pipeline
    monkeypatch.setattr(OtherPipeline, "lacks", lacks, raising=False)
    monkeypatch.setattr(real, "pipeline", pipeline)
    with line.pipelined():
        a_turn(line)
    monkeypatch.undo()
    assert rows(line) == 20


def test_a_turn_that_fails_half_way_leaves_nothing(line: PostgresLine) -> None:
    def half() -> None:
        with line.pipelined():
            line.own("BEGIN")
            line.execute("INSERT INTO meta VALUES (?, 'told')", ["row"])
            raise KeyError("of the caller")

    with pytest.raises(KeyError):
        half()
    line.own("ROLLBACK")
    assert rows(line) == 0
    assert not line.broken
