"""The exit codes of `dlq`; they are decided here only."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_common.errors import (
    AuditUnavailable,
    ConfigError,
    Conflict,
    CursorExpired,
    DlqError,
    InvalidRequest,
    NotFound,
    NotLeader,
    PermissionDenied,
    QuotaExceeded,
    TryAgain,
    Unauthenticated,
    Unavailable,
    Unsatisfiable,
)

OK = 0
FAILURE = 1
USAGE = 2
NOT_FOUND = 3
PERMISSION = 4
INFEASIBLE = 5  # refused for good: nothing is queued
UNGUARANTEED = 6  # queued, and its deadline is not guaranteed
UNJUDGED = 7  # queued, and nobody judges its deadline
UNREACHABLE = 69  # EX_UNAVAILABLE
TRY_AGAIN = 75  # EX_TEMPFAIL
TIMED_OUT = 124  # as timeout(1)
INTERRUPTED = 130  # Ctrl-C
SIGNALLED = 128  # plus the number of the signal that ended a job

_BY_ERROR: Mapping[type[DlqError], int] = {
    InvalidRequest: USAGE,
    ConfigError: USAGE,
    NotFound: NOT_FOUND,
    PermissionDenied: PERMISSION,
    Unauthenticated: PERMISSION,
    Unsatisfiable: INFEASIBLE,
    # His jobs end some day, and then there is room: nothing says that it can never run.
    QuotaExceeded: TRY_AGAIN,
    Unavailable: UNREACHABLE,
    NotLeader: TRY_AGAIN,
    AuditUnavailable: TRY_AGAIN,
    TryAgain: TRY_AGAIN,
    Conflict: TRY_AGAIN,
    CursorExpired: TRY_AGAIN,
}


class Ended(Exception):
    """The command is over with this exit code; everything has been said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def code_of_error(error: DlqError) -> int:
    """The exit code of a failed command."""
    for kind in type(error).__mro__:
        if kind in _BY_ERROR:
            return _BY_ERROR[kind]
    return FAILURE


def code_of_job(*, completed: bool, exit_code: int | None, exit_signal: int) -> int:
    """The exit code of an ended job: its own, 128 + n for a signal, 1 when it has none."""
    if exit_signal:
        return SIGNALLED + exit_signal
    if exit_code:
        return exit_code
    return OK if completed else FAILURE
