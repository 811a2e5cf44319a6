"""Indexes of array jobs as people write them: `0-15`, `1,3,7`, `0-100:10`, and ids like
`12_[0-3,7]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LARGEST_INDEX = 4_000_000
MOST_TASKS = 100_000

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_LIMIT = re.compile(r"%(\d{1,9})$", re.ASCII)
_TASKS = re.compile(r"(\d{1,18})_(?:(\d{1,9})|\[([^\]]*)\])", re.ASCII)
_FIRST_DIGITS = re.compile(r"\d{0,9}", re.ASCII)
_FORMS = "write 0-15, 1,3,7 or 0-100:10"


class IndexRange(NamedTuple):
    """first, first + step, ... up to last."""

    first: int
    last: int
    step: int = 1

    def indexes(self) -> range:
        return range(self.first, self.last + 1, self.step)


class ArrayText(NamedTuple):
    """An array as it was written: `0-99%4`; a limit of 0 means all at a time."""

    ranges: tuple[IndexRange, ...]
    concurrent: int


class NamedTasks(NamedTuple):
    """The same as ranges: a few letters can name 100,000 tasks, so they are counted first."""

    array_id: str
    ranges: tuple[IndexRange, ...]
    task_count: int


class TasksText(NamedTuple):
    """Tasks by an array's number: `12_4`, `12_[0-3]`."""

    array_id: str
    indexes: tuple[int, ...]


def parse_array(text: str) -> ArrayText:
    """The array of `0-15`, `1,3,7`, `0-100:10`, each perhaps with `%4`. ValueError names the
    fault.
    """
    compact = text.strip()
    limit = _LIMIT.search(compact)
    concurrent = int(limit[1]) if limit else 0  # %0 is no limit, as in Slurm
    ranges = _LIMIT.sub("", compact).removeprefix("[").removesuffix("]")
    return ArrayText(parse_ranges(ranges), concurrent)


def slurm_array(text: str) -> str:
    """An array as Slurm reads it, in a form that `parse_array` takes.

    An index twice is one, and empty parts are none. `%4` alone is index 0. Of a limit the digits
    count. Text that has no such reading, or whose parts are too many tasks, stays as it is.
    """
    indexes, percent, limit = text.partition("%")
    parts = [part for part in re.split(r"[,\[\]]", indexes) if part.strip()]
    try:
        ranges = [each for part in parts for each in _read_ranges(part)]
        if count_of(ranges) > MOST_TASKS:
            return text
    except ValueError:
        return text
    every = {index for each in ranges for index in each.indexes()}
    most = _FIRST_DIGITS.match(limit.lstrip())
    shown = format_indexes(sorted(every or {0}))
    return f"{shown}%{most[0]}" if percent and most and most[0] else shown


def parse_ranges(text: str) -> tuple[IndexRange, ...]:
    """The ranges of `0-3,7,10-100:10`. ValueError for anything else, and for an index named
    twice.
    """
    ranges = _read_ranges(text)
    expand(ranges)
    return ranges


def _read_ranges(text: str) -> tuple[IndexRange, ...]:
    """As they are written; `count_of` checks them."""
    ranges = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise ValueError(f"{text!r} names no indexes: {_FORMS}")
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        ranges.append(IndexRange(first, last, step))
    return tuple(ranges)


def expand(ranges: Iterable[IndexRange]) -> tuple[int, ...]:
    """The indexes of some ranges, rising. ValueError for empty or endless ones, and for an index
    twice.
    """
    listed = tuple(ranges)
    return _indexes(listed, count_of(listed))


def _indexes(ranges: Iterable[IndexRange], count: int) -> tuple[int, ...]:
    """The same of checked ranges with so many indexes."""
    if count > MOST_TASKS:
        raise ValueError(f"more than {MOST_TASKS} tasks")
    indexes = {index for each in ranges for index in each.indexes()}
    if not indexes:
        raise ValueError(f"there are no indexes: {_FORMS}")
    if len(indexes) < count:
        raise ValueError("an index is named twice")
    return tuple(sorted(indexes))


def count_of(ranges: Iterable[IndexRange]) -> int:
    """The number of indexes, without a look at each. ValueError for empty ranges."""
    count = 0
    for each in ranges:
        _check_range(each)
        count += len(each.indexes())
    return count


def _check_range(each: IndexRange) -> None:
    if each.first < 0 or each.last > LARGEST_INDEX:
        raise ValueError(f"indexes go from 0 to {LARGEST_INDEX}")
    if each.last < each.first or each.step < 1:
        raise ValueError(f"{_range_text(each)} is empty: {_FORMS}")


def read_tasks(text: str) -> NamedTasks | None:
    """`parse_tasks` without the single indexes. They may be named twice, and be too many."""
    found = _TASKS.fullmatch(text)
    if not found:
        return None
    ranges = _read_ranges(found[2] or _LIMIT.sub("", found[3]))
    return NamedTasks(str(int(found[1])), ranges, count_of(ranges))


def parse_tasks(text: str) -> TasksText | None:
    """The tasks of `12_4` or `12_[0-3,7]`; None for other words. ValueError for bad indexes.

    A limit is passed over: `12_[4-99%4]` is how a list shows them.
    """
    if (named := read_tasks(text)) is None:
        return None
    return TasksText(named.array_id, _indexes(named.ranges, named.task_count))


def format_indexes(indexes: Sequence[int]) -> str:
    """Rising indexes as short as they can be written; `parse_ranges` reads it back:
    `0-3,7,10-30:10`.
    """
    parts: list[str] = []
    at = 0
    while at < len(indexes):
        step = indexes[at + 1] - indexes[at] if at + 1 < len(indexes) else 1
        end = at
        while end + 1 < len(indexes) and indexes[end + 1] - indexes[end] == step:
            end += 1
        if end - at < 2 and step != 1:
            end = at  # two far apart are shorter one by one
        parts.append(_range_text(IndexRange(indexes[at], indexes[end], max(1, step))))
        at = end + 1
    return ",".join(parts)


def _range_text(each: IndexRange) -> str:
    if each.first == each.last:
        return str(each.first)
    return f"{each.first}-{each.last}" + (f":{each.step}" if each.step != 1 else "")
