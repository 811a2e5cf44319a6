"""Everything that is wrong with a spec or a script, offline, each with file and line. Doubts
about valid ones that will hardly do as meant are here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dlq_cli.spec.merge import merge
from dlq_cli.spec.script import read_script
from dlq_cli.spec.toml_yaml import SUFFIXES, read_spec_file
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Notes, collected
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.table.container import IMAGE
from dlq_common.job_fields.table.job import WORKDIR
from dlq_common.job_fields.table.order import RUN_ESTIMATE, STEPS, TIME_LIMIT
from dlq_common.job_fields.table.output_files import OPEN_MODE, STDERR, STDOUT
from dlq_common.text.names import shown
from dlq_common.text.output_patterns import is_of_each_task


class Problem(NamedTuple):
    """One mistake."""

    line: int | None  # None: the line is not for dlq
    text: str  # with the file, and the line if there is one, before it
    hint: str


class Checked(NamedTuple):
    """The content of a file: a spec, or problems; notes in either case."""

    name: str
    spec: Spec | None
    problems: list[Problem]
    notes: list[str]


def check(content: bytes, name: str, *, directory: str, shell: Mapping[str, str]) -> Checked:
    """Read a file as `dlq submit` in `directory` would; it asks no server and raises nothing."""
    found: list[InvalidRequest] = []
    spec, notes = None, Notes()
    with collected(found):
        if name.lower().endswith(SUFFIXES):
            layer = read_spec_file(content, name, found)
        else:
            layer, notes = read_script(content, name, found)
        if not found:
            spec = finish(merge([layer], shell), directory=directory)
    told = [*notes, *(doubts(spec) if spec else ())]
    return Checked(name, spec, [_problem(error) for error in found], told)


def unread(name: str, error: InvalidRequest) -> Checked:
    """The result for a file that cannot be read."""
    return Checked(name, None, [_problem(error)], [])


def _problem(error: InvalidRequest) -> Problem:
    place, _, line = error.field.rpartition(":")
    known = place and line.isdecimal()
    return Problem(int(line) if known else None, error.what, error.hint)


# The master sends no warning in an attempt's first seconds (control/jobs/limits.py).
STARTUP_S = 20


def doubts(spec: Spec) -> Iterator[str]:
    """A sentence for each, with where it was said."""
    yield from _deadline_doubts(spec)
    yield from _warning_doubts(spec)
    yield from _shared_file_doubts(spec)
    yield from _missing_place_doubts(spec)


def _deadline_doubts(spec: Spec) -> Iterator[str]:
    limit_s, work_s = spec.of(TIME_LIMIT), spec.of(RUN_ESTIMATE)
    steps = spec.of(STEPS)
    origin = spec.origins.get("deadline") or spec.origins.get("soft_deadline", "the deadline")
    if spec.deadlines and work_s is None and steps is None:
        yield (
            f"{origin}: the run time is unknown, so nothing can be promised yet. Name it with "
            f"--work, or dlq_train reports it during the run, where the policy measures jobs"
        )
    if spec.deadlines and limit_s is not None and work_s is not None and work_s > limit_s:
        origin = spec.origins.get("time_limit", "the time limit")
        yield f"{origin}: the job is ended after {limit_s:g} s, and its work takes {work_s:g} s"
    if steps is not None and work_s is None:
        origin = spec.origins.get("steps", "steps")
        yield (
            f"{origin}: the run time is reckoned from the steps that the job tells (dlq_train), a "
            "minute after its start; if it tells none, never. With --work it is known at once"
        )


def _warning_doubts(spec: Spec) -> Iterator[str]:
    if spec.warning_s is None:
        return
    origin, limit_s = spec.origins.get("preempt.signal", "the signal"), spec.of(TIME_LIMIT)
    if limit_s is None:
        yield (
            f"{origin}: without a time limit nothing is warned of: the {spec.warning_s} s are the "
            "grace of a pause"
        )
    elif limit_s <= STARTUP_S:
        yield (
            f"{origin}: a limit of {limit_s:g} s ends before anybody is warned (after "
            f"{STARTUP_S} s)"
        )
    elif limit_s <= spec.warning_s + STARTUP_S:
        yield (
            f"{origin}: a limit of {limit_s:g} s leaves no {spec.warning_s} s to warn "
            f"ahead: the signal comes {STARTUP_S} s after the start"
        )


def _shared_file_doubts(spec: Spec) -> Iterator[str]:
    """The first attempt of each task empties the file that all of them write."""
    if spec.array is None or spec.of(OPEN_MODE) == "append":
        return
    for field, flag in ((STDOUT, "--output"), (STDERR, "--error")):
        pattern = spec.of(field)
        if pattern is not None and pattern != os.devnull and not is_of_each_task(pattern):
            yield (
                f"{spec.origins.get(field.key, flag)}: all tasks of the array write this file, and "
                "each empties it when it starts: name %a in it, or say --open-mode append"
            )


def _missing_place_doubts(spec: Spec) -> Iterator[str]:
    """A job whose output files have no directory fails when it starts, perhaps days later. Where
    the working directory is not here either, this host does not know.
    """
    workdir = spec.of(WORKDIR)
    if spec.of(IMAGE) is not None or not workdir or not os.path.isdir(workdir):
        return
    for field, flag in ((STDOUT, "--output"), (STDERR, "--error")):
        place = os.path.dirname(spec.of(field) or "")
        if place and "%" not in place and not os.path.isdir(os.path.join(workdir, place)):
            yield (
                f"{spec.origins.get(field.key, flag)}: there is no directory {shown(place)} here, "
                "and the job fails where its node has none"
            )
