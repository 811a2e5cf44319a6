"""Everything that is wrong with a spec or a script, offline, each with file and line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_cli.spec.doubts import doubts
from dlq_cli.spec.merge import merge
from dlq_cli.spec.script import read_script
from dlq_cli.spec.toml_yaml import SUFFIXES, read_spec_file
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Notes, collected
from dlq_common.errors import InvalidRequest


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
