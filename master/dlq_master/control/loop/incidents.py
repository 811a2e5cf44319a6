"""Stimuli on which a handler failed: each is stored in a file, and refused for a while.

A handler that raises anything but a DlqError has a bug, and leaves a half-changed draft. Nothing of
the turn is on disk. The master loads its state again (app.py), in the same process, and senders
repeat their stimuli. The one that failed is refused:

- a request of a user: that request for good. After a second failure also all requests of its kind
  by that user, for a time that doubles from 30 s to 1 h;
- a stimulus of a node, or a tick: all of that kind from that node, for the same time.

Each failure is a short outage for all. So a sender whose stimuli of KINDS_BORNE kinds have failed
is refused altogether for these times. Afterwards its stimuli are tried again.

When the master restarts, it reads the files, and the times go on. When an agent restarts, its hello
is also refused until the time is over.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, InternalError, Unavailable
from dlq_common.text.units import approximate_span
from dlq_master.control.stimuli import Stimulus, Tick

FIRST_PAUSE_S: Final = 30.0  # each failure is a restart, with its start grace ([nodes] start_grace)
LONGEST_PAUSE_S: Final = 3600.0
MOST_KEPT: Final = 100
KINDS_BORNE: Final = 3
LONGEST_TRACE: Final = 64 * 1024
# The stored fields of a stimulus: never a script, an environment, a token or a certificate.
_TOLD: Final = (
    *(
        "name",
        "node_id",
        "caller",
        "request_id",
        "job_id",
        "session_id",
        "queue",
        "team",
        "pool_name",
    ),
    *("token_id", "user", "digest"),
)
_LONGEST_TOLD: Final = 200

LONGEST_CAUSE: Final = 500
T = TypeVar("T")

_log = get_logger("master.incidents")


class Incident(NamedTuple):
    """One stimulus on which a handler failed."""

    incident_id: str
    kind: str  # of the stimulus
    sender: str  # node:NAME, user:NAME, or empty
    request_id: str  # of a user's request; empty: it has none
    where: str
    words: str
    time_s: float
    failures: int  # of this kind by this sender so far, with this one

    @property
    def until_s(self) -> float:
        """The end of the time for which this kind by this sender is refused."""
        return self.time_s + min(FIRST_PAUSE_S * 2.0 ** (self.failures - 1), LONGEST_PAUSE_S)


class HandlerFailed(Exception):
    """The master has failed on a stimulus: it has to begin anew from what is on disk."""

    def __init__(self, incident: Incident) -> None:
        super().__init__(f"{incident.kind} {incident.sender}: {incident.words}")
        self.incident = incident


class Incidents:
    """Those of this state directory."""

    def __init__(self, directory: Path) -> None:
        """The directory is made with the first incident. Files that cannot be read are passed
        over.
        """
        self._directory = directory
        self._last: dict[str, dict[str, Incident]] = {}  # sender -> kind
        self._requests: set[tuple[str, str, str]] = set()
        for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
            try:
                found = json.loads(path.read_bytes())
                self._remember(Incident(*(found[name] for name in Incident._fields)))
            except (OSError, ValueError, KeyError, TypeError):
                _log.warning("incident_unreadable", file=str(path))

    def refusal(self, stimulus: Stimulus, now_s: float) -> DlqError | None:
        """The error that refuses this stimulus; None: it may be handled."""
        if not self._last:
            return None
        kind, sender, request_id = _mark(stimulus)
        kinds = self._last.get(sender)
        if kinds is None:
            return None
        last = kinds.get(kind)
        if last is not None:
            if request_id and (kind, sender, request_id) in self._requests:
                return refused_for(last)
            if (last.failures > 1 or not last.request_id) and now_s < last.until_s:
                return _later(last, now_s) if sender.startswith("node:") else refused_for(last)
        shut_out = sorted(one.until_s for one in kinds.values() if now_s < one.until_s)
        if not sender or len(shut_out) < KINDS_BORNE:
            return None
        again = approximate_span(shut_out[-KINDS_BORNE] - now_s)
        return Unavailable(
            f"the master failed on {len(shut_out)} kinds of requests of {sender}; it takes the "
            f"next one in {again}"
        )

    def put_aside(self, stimulus: Stimulus, fault: BaseException, now_s: float) -> Incident:
        """Write down what the master has failed on. Never fails itself."""
        kind, sender, request_id = _mark(stimulus)
        before = self._last.get(sender, {}).get(kind)
        incident = Incident(
            incident_id=f"{int(now_s * 1000):x}",
            kind=kind,
            sender=sender,
            request_id=request_id,
            where=_where(fault),
            words=f"{type(fault).__name__}: {fault}"[:_LONGEST_TOLD],
            time_s=now_s,
            failures=1 if before is None else before.failures + 1,
        )
        self._remember(incident)
        trace = "".join(traceback.format_exception(fault))[-LONGEST_TRACE:]
        body = {**incident._asdict(), "stimulus": _told(stimulus), "trace": trace.splitlines()}
        try:
            self._write(incident, json.dumps(body, indent=1).encode())
        except OSError as error:
            _log.error("incident_not_written", cause=str(error))
        return incident

    def told(self) -> tuple[Incident, ...]:
        """The last of each kind and sender, oldest first."""
        found = (one for kinds in self._last.values() for one in kinds.values())
        return tuple(sorted(found, key=lambda one: one.time_s))

    def __len__(self) -> int:
        return sum(map(len, self._last.values()))

    def _remember(self, incident: Incident) -> None:
        self._last.setdefault(incident.sender, {})[incident.kind] = incident
        if incident.request_id:
            self._requests.add((incident.kind, incident.sender, incident.request_id))

    def _write(self, incident: Incident, body: bytes) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._directory / f"{incident.incident_id}.json"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        for old in sorted(self._directory.glob("*.json"))[:-MOST_KEPT]:
            old.unlink(missing_ok=True)


def sheltered(work: Callable[[], T], otherwise: Callable[[Exception], T]) -> T:
    """The answers of a policy outside a plan; a bug of it must not end the turn."""
    try:
        return work()
    except Exception as fault:  # noqa: BLE001 - any bug of a policy
        _log.error("policy_failed", cause=f"{type(fault).__name__}: {fault}"[:LONGEST_CAUSE])
        return otherwise(fault)


def refused_for(incident: Incident) -> DlqError:
    """The answer to the sender of a stimulus on which the master has failed."""
    return InternalError(
        "the master failed on this request: a fault of dlq, and nothing was changed",
        hint=f"tell an operator: incident {incident.incident_id}",
        incident=incident.incident_id,
    )


def _later(incident: Incident, now_s: float) -> Unavailable:
    again = approximate_span(incident.until_s - now_s)
    return Unavailable(
        f"the master failed on this before (incident {incident.incident_id}); it tries again in "
        f"{again}"
    )


def sent_by(stimulus: Stimulus) -> tuple[str, str]:
    """The kind of a stimulus and its sender."""
    kind, sender, _ = _mark(stimulus)
    return kind, sender


def _mark(stimulus: Stimulus) -> tuple[str, str, str]:
    """By what a stimulus is known again: its kind, its sender, and its own key if it has one."""
    kind = type(stimulus).__name__
    if isinstance(stimulus, Tick):
        return kind, f"tick:{stimulus.name}", ""
    caller = getattr(stimulus, "caller", None)
    if caller is not None:
        return kind, f"user:{caller.name}", str(getattr(stimulus, "request_id", "") or "")
    node_id = getattr(stimulus, "node_id", "")
    return kind, f"node:{node_id}" if node_id else "", ""


def _told(stimulus: Stimulus) -> dict[str, Any]:
    """The parts of it that may be written down."""
    there = (name for name in _TOLD if hasattr(stimulus, name))
    return {name: str(getattr(stimulus, name))[:_LONGEST_TOLD] for name in there}


def _where(fault: BaseException) -> str:
    frames = traceback.extract_tb(fault.__traceback__)
    if not frames:
        return type(fault).__name__
    path = frames[-1].filename.rpartition("dlq_master/")[2]
    return f"{path}:{frames[-1].lineno}"
