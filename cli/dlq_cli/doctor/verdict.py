"""One verdict on one thing: its state, the finding, and the advice."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ClientHealth(StrEnum):
    """From nothing to do to nothing works."""

    OK = "ok"
    SKIP = "skip"  # not checked, because of another failed check
    WARN = "warn"  # works, but a part is missing
    FAIL = "fail"


class CheckVerdict(NamedTuple):
    """The result of one check."""

    check: str
    health: ClientHealth
    found: str
    todo: str = ""  # the advice, a command where there is one


def ok(check: str, found: str) -> CheckVerdict:
    """Nothing to do."""
    return CheckVerdict(check, ClientHealth.OK, found)


def warn(check: str, found: str, todo: str) -> CheckVerdict:
    """Works, but something will be missed."""
    return CheckVerdict(check, ClientHealth.WARN, found, todo)


def fail(check: str, found: str, todo: str) -> CheckVerdict:
    """Does not work."""
    return CheckVerdict(check, ClientHealth.FAIL, found, todo)


def skip(check: str, found: str) -> CheckVerdict:
    """Not looked at."""
    return CheckVerdict(check, ClientHealth.SKIP, found)
