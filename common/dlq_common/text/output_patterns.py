"""Slurm's patterns for the names of output files (`slurm-%A_%a.out`), as pure functions.

The rules are those of Slurm 22.05, measured; tests/data/slurm_output_patterns.json has its answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dlq_common.text.names import LONGEST_PATH_BYTES, shown

WIDEST = 10
"""No number is padded to more digits."""

NO_ARRAY_TASK = 4294967294
"""Slurm's index of a job outside an array."""

_SPECIFIER = re.compile(r"%(?:(%)|(\d*)([A-Za-z]?))")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputNames:
    """Values of the specifiers for one rank of a job."""

    job_id: int
    array_id: int
    array_index: int = NO_ARRAY_TASK
    job_name: str
    user: str
    host: str
    node_rank: int = 0
    task: int = 0
    step: str = "batch"

    def by_letter(self) -> Mapping[str, int | str]:
        """The values, by the letter of the specifier. Only numbers are padded."""
        return {
            **{"j": self.job_id, "J": self.job_id, "A": self.array_id, "a": self.array_index},
            **{"n": self.node_rank, "t": self.task, "s": self.step},
            **{"x": self.job_name, "u": self.user, "N": self.host},
        }


def check_output_pattern(pattern: str, what: str) -> str:
    """The pattern; ValueError names the fault. Unknown specifiers stay as they are, as in Slurm."""
    if not pattern:
        raise ValueError(f"{what} is empty")
    if pattern.endswith("/"):
        raise ValueError(f"{what} {shown(pattern)} is a directory: name a file")
    if any(ord(char) < 32 or ord(char) == 127 for char in pattern):
        raise ValueError(f"{what} {shown(pattern)} holds a control character")
    if len(pattern.encode("utf-8", "surrogateescape")) > LONGEST_PATH_BYTES:
        raise ValueError(f"{what} is longer than {LONGEST_PATH_BYTES} bytes")
    return pattern


def is_of_each_rank(pattern: str) -> bool:
    """Whether the name differs between the ranks of a job: it holds %n, %N or %t."""
    return _holds(pattern, frozenset("nNt"))


def is_of_each_task(pattern: str) -> bool:
    """Whether the name differs between the tasks of an array: it holds %a, %j or %J."""
    return _holds(pattern, frozenset("ajJ"))


def _holds(pattern: str, letters: frozenset[str]) -> bool:
    found = () if "\\" in pattern else _SPECIFIER.finditer(pattern)
    return any(one[3] in letters for one in found)


def expand_output_pattern(pattern: str, names: OutputNames) -> str:
    """The name of the file. One backslash anywhere turns all specifiers off, and goes."""
    if "\\" in pattern:
        return _ESCAPE.sub(r"\1", pattern)
    values = names.by_letter()

    def one(found: re.Match[str]) -> str:
        percent, width, letter = found.groups()
        value = values.get(letter or "")
        if percent:
            return "%"
        if value is None:  # an unknown one loses its `%` only where it has a width
            return f"{width}{letter}" if width else f"%{letter}"
        if isinstance(value, str):
            return value
        return str(value).zfill(min(int(width[-4:] or 0), WIDEST))

    return _SPECIFIER.sub(one, pattern)
