"""When a job may start, as people write it: arrays, dependencies, begins; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, time, tzinfo
from typing import NamedTuple

from dlq_common.text.arrays import ArrayText, parse_array, parse_tasks
from dlq_common.text.hostlist import split_outside_brackets
from dlq_common.text.instants import parse_instant
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean

RELATIONS = ("after", "afterok", "afternotok", "afterany", "aftercorr", "singleton")
_JOB = re.compile(r"[1-9][0-9]{0,17}(?:_[0-9]{1,9})?", re.ASCII)
_MINUTES = re.compile(r"[0-9]{1,6}", re.ASCII)
MOST_MINUTES = 366 * 24 * 60
MOST_TERMS = 100
_FORMS = "write afterok:12:13,afterany:14 (all of them) or with ? (any of them)"


class TermText(NamedTuple):
    """One relation to one job; a singleton names none."""

    relation: str
    job: str
    minutes: int = 0  # after its start; with `after`

    def __str__(self) -> str:
        delay = f"+{self.minutes}" if self.minutes else ""
        return f"{self.relation}:{self.job}{delay}" if self.job else self.relation


class DependencyText(NamedTuple):
    """All terms, or any of them."""

    terms: tuple[TermText, ...]
    any: bool


def read_array(raw: object) -> ArrayText:
    """`0-15`, `1,3,7`, `0-100:10`, perhaps with `%4`; or a list of indexes."""
    if isinstance(raw, list):
        raw = ",".join(map(str, raw))
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise ValueError(f"{shown(str(raw))} names no indexes: write 0-15, 1,3,7 or 0-99%4")
    return parse_array(str(raw))


def read_dependency(raw: object) -> DependencyText:
    """`afterok:12:13,afterany:14`, with `?` for any; `singleton`; or a list of such words."""
    if isinstance(raw, list):
        raw = ",".join(map(str, raw))
    text = raw.strip() if isinstance(raw, str) else ""
    if not text:
        raise ValueError(f"{shown(str(raw))} names no jobs: {_FORMS}")
    parts = split_outside_brackets(text)  # not at the comma of 12_[0,2]
    if "?" in text:
        if len(parts) > 1:
            raise ValueError("`,` (all of them) and `?` (any of them) do not go together")
        parts = text.split("?")
    terms: dict[TermText, None] = {}
    for part in parts:
        for term in _terms(part.strip()):
            terms[term] = None
            if len(terms) > MOST_TERMS:
                raise ValueError(f"it names more than {MOST_TERMS} jobs")
    return DependencyText(tuple(terms), "?" in text)


def _terms(part: str) -> Iterator[TermText]:
    """One after the other, as a few letters can name 100,000 tasks, many times."""
    relation, *jobs = part.split(":")
    relation = relation.strip().lower()
    if relation not in RELATIONS:
        if _JOB.fullmatch(relation):
            raise ValueError(f"what should have become of job {relation}? {_FORMS}")
        raise ValueError(f"{shown(relation)} is no relation{did_you_mean(relation, RELATIONS)}")
    if relation == "singleton":
        if jobs:
            raise ValueError("singleton takes no job: it means all earlier ones of this name")
        yield TermText(relation, "")
        return
    if not jobs:
        raise ValueError(f"{relation} names no job: {_FORMS}")
    for job in jobs:
        yield from _of_job(relation, job.strip())


def _of_job(relation: str, text: str) -> list[TermText]:
    """`12`, or with `after` also `12+5`: five minutes after its start."""
    job, plus, minutes = text.partition("+")
    if plus and relation != "after":
        raise ValueError(f"{relation} takes no delay: only after:{job}+MINUTES does")
    delay = int(minutes) if _MINUTES.fullmatch(minutes) else 0 if not plus else MOST_MINUTES + 1
    if delay > MOST_MINUTES:
        raise ValueError(f"{shown(minutes)} is no number of minutes up to {MOST_MINUTES}")
    return [TermText(relation, name, delay) for name in _names(job)]


def _names(job: str) -> list[str]:
    """`12`, `12_4`; of `12_[0-3]` each task by its own name. `12_*` is `12`, as lists show it."""
    job = job.removesuffix("_*")
    named = parse_tasks(job)
    if named is not None and "[" in job:
        return [f"{named.array_id}_{index}" for index in named.indexes]
    if not _JOB.fullmatch(job):
        raise ValueError(
            f"{shown(job)} is not a job: write 12, or 12_4 or 12_[0-3] for tasks of an array"
        )
    return [job]


def read_begin(raw: object) -> str:
    """An instant in one of the forms of `parse_instant`; `now+2hours` counts from the
    submission.
    """
    if isinstance(raw, datetime | time):
        return raw.isoformat()
    if not isinstance(raw, str):
        raise ValueError(f"{shown(str(raw))} is not an instant: put it in quotes")
    parse_instant(raw, now_s=0.0, zone=UTC)
    return raw.strip()


def begin_s(text: str, *, now_s: float, zone: tzinfo) -> float:
    """The instant that was meant, in UTC seconds; one without an offset is in `zone`."""
    return parse_instant(text, now_s=now_s, zone=zone)
