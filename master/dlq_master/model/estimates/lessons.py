"""The knowledge of a master as rows of a bounded number and size.

A kind of fact of which the newest count is a ring: its rows are places that are written again and
again. A row holds some facts that came one after another, and the number of the first. So a master
that starts again knows the same facts in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

F = TypeVar("F")
IN_A_ROW = 32  # facts


class Lesson(NamedTuple):
    """One row. `name`: its kind and its place, as in "ratio/17". `number`: of its first fact among
    all of its kind; the latest has the highest.
    """

    name: str
    number: int
    numbers: tuple[float, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]


class Newest(deque[F]):
    """The newest facts of one kind; `total`: of all that ever came."""

    def __init__(self, facts: Iterable[F] = (), maxlen: int | None = None) -> None:
        super().__init__(facts, maxlen)
        self.total = len(self)

    def append(self, fact: F) -> None:
        """One more fact."""
        super().append(fact)
        self.total += 1

    def extend(self, facts: Iterable[F]) -> None:
        """Some more facts."""
        for fact in facts:
            self.append(fact)


class Ring(Generic[F]):
    """How the facts of one kind lie in rows.

    `split`: the numbers and the words of a fact, always as many; `made`: the fact again. `kept`:
    so many facts are in the rows at least.
    """

    def __init__(
        self,
        kind: str,
        kept: int,
        split: Callable[[F], tuple[Sequence[float], Sequence[str]]],
        made: Callable[[Sequence[float], Sequence[str]], F],
    ) -> None:
        self.kind = kind
        self._places = kept // IN_A_ROW + 2
        self._split, self._made = split, made

    def rows(self, newest: Newest[F], told: int) -> list[Lesson]:
        """The rows with all facts after the first `told`."""
        first_known = newest.total - len(newest)
        row = max(told, first_known) // IN_A_ROW
        found: list[Lesson] = []
        while row * IN_A_ROW < newest.total:
            first = max(row * IN_A_ROW, first_known)
            last = min((row + 1) * IN_A_ROW, newest.total)
            facts = list(islice(reversed(newest), newest.total - last, newest.total - first))
            found.append(self._row(row, first, facts[::-1]))
            row += 1
        return found

    def _row(self, row: int, first: int, facts: Iterable[F]) -> Lesson:
        numbers: list[float] = []
        words: list[str] = []
        for fact in facts:
            some, named = self._split(fact)
            numbers += some
            words += named
        name = f"{self.kind}/{row % self._places}"
        return Lesson(name, first, tuple(numbers), tuple(words))

    def facts(self, rows: Iterable[Lesson], width: int, named: int = 0) -> tuple[int, list[F]]:
        """The number of the first fact in these rows, and the facts; each of so many numbers and
        words. Facts before a gap are left out.
        """
        begin, found = 0, list[F]()
        for row in sorted(rows, key=lambda row: row.number):
            if row.number != begin + len(found):
                begin, found = row.number, []
            for at in range(len(row.numbers) // width):
                numbers = row.numbers[at * width : (at + 1) * width]
                found.append(self._made(numbers, row.words[at * named : (at + 1) * named]))
        return begin, found


def newest_of(begin: int, facts: Sequence[Any], maxlen: int) -> Newest[Any]:
    """The facts again, as they were counted."""
    found: Newest[Any] = Newest(facts, maxlen)
    found.total = begin + len(facts)
    return found
