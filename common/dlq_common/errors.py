"""Errors as types: every door (RPC, CLI, log) shows the same reason word.

    DlqError
    ├── InvalidRequest        the request is malformed; `field` says where
    ├── ConfigError           a configuration file or variable is wrong
    ├── Unauthenticated       nobody we know
    ├── PermissionDenied      known, but not allowed
    ├── NotFound              no such job, node, queue, ...
    ├── AlreadyExists         that name or id is taken
    ├── Conflict              it changed since you read it: read again and retry
    ├── IllegalTransition     not in this state: a retry will not help
    │   └── WorkWouldBeLost   it would lose work; the same request with `accept_loss` does it
    ├── StaleFence            from an older attempt or epoch: obsolete, not wrong
    ├── QuotaExceeded         a limit of yours is reached
    ├── Unsatisfiable         no set of nodes here could ever hold it
    ├── CursorExpired         the history you ask for is gone: read the state anew
    ├── TryAgain              too much at once; retry after a pause
    ├── Unavailable           no answer, or not able to serve now
    │   ├── NotLeader         another master serves
    │   └── AuditUnavailable  no change is accepted: the audit log cannot be written
    └── InternalError         our fault; `incident` finds it in the log

An error carries facts (`metadata`, all text); `what` is one line for people and is never parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

DOMAIN = "dlq"


class DlqError(Exception):
    """Any expected failure: a stable `reason` word, one line for people, facts, perhaps a hint."""

    reason: ClassVar[str] = "DLQ_ERROR"

    def __init__(self, what: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.metadata: dict[str, str] = {key: str(value) for key, value in facts.items()}

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}" if self.hint else self.what


class InvalidRequest(DlqError):
    """The request is malformed; repeating it unchanged fails again. Facts: field."""

    reason = "INVALID_REQUEST"

    def __init__(self, what: str, *, field: str = "", hint: str = "", **facts: object) -> None:
        super().__init__(what, hint=hint, field=field, **facts)
        self.field = field


class ConfigError(DlqError):
    """A configuration file, or a variable that overrides it, is wrong. Facts: source, key."""

    reason = "CONFIG_ERROR"


class Unauthenticated(DlqError):
    """No certificate, or one that we do not trust."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(DlqError):
    """The caller is known and may not do this. Facts: user, needs."""

    reason = "PERMISSION_DENIED"


class NotFound(DlqError):
    """There is no such thing, or the caller may not know of it. Facts: kind, id."""

    reason = "NOT_FOUND"


class AlreadyExists(DlqError):
    """The name or id is taken by something else. Facts: kind, id."""

    reason = "ALREADY_EXISTS"


class Conflict(DlqError):
    """The thing changed since the caller read it; read again, then retry. Facts: version."""

    reason = "CONFLICT"


class IllegalTransition(DlqError):
    """The thing is in a state that does not allow this; a retry will not help. Facts: id, state."""

    reason = "ILLEGAL_TRANSITION"


class WorkWouldBeLost(IllegalTransition):
    """The order would stop jobs that are not known to save their work."""

    reason = "WORK_WOULD_BE_LOST"


class StaleFence(DlqError):
    """The message came from an older attempt or epoch than the present one. Facts: epoch,
    attempt.
    """

    reason = "STALE_FENCE"


class QuotaExceeded(DlqError):
    """A limit of the caller is reached. Facts: limit, used, asked."""

    reason = "QUOTA_EXCEEDED"


class Unsatisfiable(DlqError):
    """No set of registered nodes could ever hold the request; `reasons` says why, one per entry."""

    reason = "UNSATISFIABLE"

    def __init__(
        self, what: str, *, reasons: tuple[str, ...] = (), hint: str = "", **facts: object
    ) -> None:
        numbered = {f"reason_{number}": text for number, text in enumerate(reasons, start=1)}
        super().__init__(what, hint=hint, **{**facts, **numbered})
        self.reasons = reasons


class CursorExpired(DlqError):
    """The journal no longer reaches back to the cursor; read the state anew. Facts: oldest."""

    reason = "CURSOR_EXPIRED"


class TryAgain(DlqError):
    """Too much is asked at once; the same request may be repeated. Facts: retry_after_s."""

    reason = "TRY_AGAIN"


class Unavailable(DlqError):
    """There is no answer, or the other side cannot serve now; it may have acted all the same."""

    reason = "UNAVAILABLE"


class NotLeader(Unavailable):
    """Another master serves. Facts: leader."""

    reason = "NOT_LEADER"


class AuditUnavailable(Unavailable):
    """The audit log cannot be written, so changes are refused. Reads, jobs and agents go on."""

    reason = "AUDIT_UNAVAILABLE"


class InternalError(DlqError):
    """A fault of ours; the log has the rest under the incident id. Facts: incident."""

    reason = "INTERNAL"


def error_from(reason: str, what: str, metadata: Mapping[str, str], hint: str = "") -> DlqError:
    """Rebuild an error from its parts on the wire; an unknown reason becomes a DlqError."""
    kind = _BY_REASON.get(reason, DlqError)
    error = kind.__new__(kind)
    DlqError.__init__(error, what, hint=hint)
    error.metadata = dict(metadata)
    if isinstance(error, InvalidRequest):
        error.field = metadata.get("field", "")
    if isinstance(error, Unsatisfiable):
        error.reasons = tuple(_numbered(metadata))
    return error


def _numbered(metadata: Mapping[str, str]) -> Iterator[str]:
    number = 1
    while (text := metadata.get(f"reason_{number}")) is not None:
        yield text
        number += 1


def _all_kinds(kind: type[DlqError]) -> Iterator[type[DlqError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all_kinds(below)


_BY_REASON: Mapping[str, type[DlqError]] = {kind.reason: kind for kind in _all_kinds(DlqError)}
