"""One verdict on one thing: how it is, what was found, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Health(StrEnum):
    """From nothing to do to nothing works."""

    OK = "ok"
    SKIP = "skip"  # could not be looked at, because of something else that is told
    WARN = "warn"  # works, but something will be missed
    FAIL = "fail"


class Verdict(NamedTuple):
    """What one check found."""

    check: str
    health: Health
    found: str
    todo: str = ""  # what to do, a command where there is one


def ok(check: str, found: str) -> Verdict:
    """Nothing to do."""
    return Verdict(check, Health.OK, found)


def warn(check: str, found: str, todo: str) -> Verdict:
    """Works, but something will be missed."""
    return Verdict(check, Health.WARN, found, todo)


def fail(check: str, found: str, todo: str) -> Verdict:
    """Does not work."""
    return Verdict(check, Health.FAIL, found, todo)


def skip(check: str, found: str) -> Verdict:
    """Not looked at."""
    return Verdict(check, Health.SKIP, found)
