"""The differences that are meant, each with its reason. docs/internals/slurm-differences.md shows
the table.
"""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """A text that is replaced on both sides before they are compared. An empty one stands for the
    whole answer, and LINES for the order of the lines.
    """

    reason: str
    calls: str  # a regular expression that is found in the call
    text: str = ""
    instead: str = ""
    code: bool = False  # the exit codes differ too
    stream: str = ""  # "out" or "err" alone


LINES = "(lines)"

EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "hints of dlq: lines on stderr, two blanks before each", ".", r"^  .*\n", stream="err"
    ),
    Explained("the version is that of the words that dlq follows", "-V$|version$"),
    Explained("jobs of equal priority come in the order of their ids", "^squeue", LINES),
)
