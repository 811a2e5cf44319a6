"""The audit: one line, kept for ever, for every call that changes something or is denied.

Its files are a chain of hashes (audit_chain.py), so that changed or missing lines are found. A
thread of its own writes them (audit_writer.py). A change is acknowledged only once its line is on
disk. The line of a change that the loop commits is in the same transaction
(control/stimuli/audit_note.py), and half a second later in the file. Any other change waits for the
file. While the file cannot be written, changes are refused (AuditUnavailable). Reads, running jobs
and reports of agents go on. Changes are accepted again once a line has been written.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from grpc import aio

from dlq_common.clock import Clock
from dlq_common.errors import AuditUnavailable, DlqError
from dlq_common.identity.pki import CertifiedIdentity, Role
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.instants import format_instant
from dlq_master.control.stimuli.audit_note import CURRENT, AuditNote
from dlq_master.rpc.audit.file import DiskFile, OpenFile
from dlq_master.rpc.audit.search import AuditSearch
from dlq_master.rpc.audit.writer import NOTHING_KNOWN, AuditWriter, KnownHead
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.errors import HiddenFromCaller

LONGEST_OBJECT = 200
LONGEST_HOOK = 500
MOST_IDS = 100  # of a list; more are not told
# The subject of a call, by the name of the field that holds it.
IDS = "job_ids"
OBJECT_FIELDS = ("job_id", "node_id", "token_id", "rule_id", "serial", "name", "policy")
SUBMITS = ("/SubmitJob", "/SubmitJobs")
COMMITTED = "COMMITTED"  # the decision of a line that only the database had: its change was made


class Audit:
    """The audit for services and the steps around calls. `record` never blocks, and never loses a
    line silently.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        known: KnownHead = NOTHING_KNOWN,
        open_file: OpenFile = DiskFile,
    ) -> None:
        """`known`: the database's record of the audit. If a file cannot be opened, changes are
        refused.
        """
        self._clock = clock
        self._run, self._notes = secrets.token_hex(8), count()  # ids of notes: no two are the same
        self.writer = AuditWriter(path, clock, known, open_file)
        self.search = AuditSearch(path)

    def begin(self, call: Call) -> None:
        """Give a change its note, which the loop commits with it."""
        call.note = AuditNote(self._next_id(), "") if call.method.changes else None
        CURRENT.set(call.note)

    def accept(self, call: Call) -> None:
        """Refuse a change while no line can be written (AuditUnavailable), and complete the call's
        note.

        Announcements of nodes are always accepted, since their lines are in the database.
        """
        note = call.note
        if note is None:
            return
        line = {"id": note.note_id, **self._line_of(call, COMMITTED)}
        note.text = _encode(line)
        if call.identity is None or call.identity.role is not Role.NODE:
            self.writer.check()

    async def done(self, call: Call) -> None:
        """The call has succeeded. A change whose line is not in the database waits for the file."""
        note = call.note
        if note is None:
            return
        line = self._line_of(call, "OK")
        if note.committed:
            self.writer.put({"id": note.note_id, **line}, note.note_id)
        else:
            await self.writer.write(line)

    def failed(self, call: Call, error: BaseException) -> None:
        """The call has failed with `error`. If its caller has left, it may have had its effect."""
        decision, denied = _decision(error)
        note = call.note
        if not decision or (note is None and not denied):
            return
        line = self._line_of(call, decision)
        if note is not None and (note.committed or decision == "CANCELLED"):
            self.writer.put({"id": note.note_id, **line}, note.note_id)
        else:
            self.writer.put(line)

    def record(
        self, who: CertifiedIdentity | None, method: str, about: str, decision: str, peer: str = ""
    ) -> None:
        """Write one line. AuditUnavailable: the disk has taken no lines for too long."""
        self.writer.put(self._line(who, method, about, decision, peer))

    async def recorded(
        self, who: CertifiedIdentity | None, method: str, about: str, decision: str, peer: str = ""
    ) -> None:
        """Write one line and wait until it is on disk. AuditUnavailable: it is not."""
        await self.writer.write(self._line(who, method, about, decision, peer))

    def close(self) -> None:
        """Write and sync the waiting lines, then stop."""
        self.writer.close()

    # --- helpers, in order of use -------------------------------------------------------------

    def _next_id(self) -> str:
        return f"{self._run}{next(self._notes):x}"

    def _line_of(self, call: Call, decision: str) -> dict[str, str]:
        told = (call.request, call.response)
        # A new thing has its number from the answer; its name may belong to anybody.
        first, second = reversed(told) if call.path.endswith(SUBMITS) else told
        about = object_of(first) or object_of(second)
        line = self._line(call.identity, call.path, about, decision, call.context.peer())
        return line | {"hook": call.hook[:LONGEST_HOOK]} if call.hook else line

    def _line(
        self, who: CertifiedIdentity | None, method: str, about: str, decision: str, peer: str
    ) -> dict[str, str]:
        # A service that acts for a user is named beside them; its certificate was the key.
        by = {"by": who.by.name} if who is not None and who.by is not None else {}
        if who is not None and who.groups:
            by["groups"] = ",".join(who.groups)[:LONGEST_OBJECT]
        if who is not None and who.through:
            by["through"] = who.through
        return {
            "time": format_instant(self._clock.now_s()),
            "who": who.name if who else "",
            "role": who.role.value if who else "",
            **by,
            "certificate": who.serial if who else "",
            "peer": peer,
            "method": method,
            "object": about[:LONGEST_OBJECT],
            "decision": decision,
        }


def _decision(error: BaseException) -> tuple[str, bool]:
    """The word for a failure, and whether it is a denial; empty: it gets no line.

    No line is written where none can be, or where nothing happened.
    """
    match error:
        case aio.AbortError():
            return "ABORTED", False
        case AuditUnavailable():
            return "", False
        case HiddenFromCaller():
            return "HIDDEN", True
        case DlqError():
            return error.reason, error.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        case asyncio.CancelledError():
            return "CANCELLED", False
        case Exception():
            return "INTERNAL", False
    return "", False


_encode = json.JSONEncoder(separators=(",", ":")).encode


def object_of(message: Message | None) -> str:
    """The subject of a request or an answer: the first id in it or one level below; of a list all
    ids.
    """
    if message is None:
        return ""
    plan = _plan(message.DESCRIPTOR)
    for name in plan.ids:
        if value := getattr(message, name):
            if name == IDS:
                return ",".join(value[:MOST_IDS])
            more = getattr(message, "more_node_ids", ())
            return compress_hostlist((value, *more)) if more else str(value)
    for name, is_list in plan.parts:
        if is_list:
            if value := getattr(message, name):
                return ",".join(islice(filter(None, map(object_of, value)), MOST_IDS))
        elif message.HasField(name) and (found := object_of(getattr(message, name))):
            return found
    return ""


class _Plan(NamedTuple):
    """Where to look for the subject of a message, in the order of its fields."""

    ids: tuple[str, ...]
    parts: tuple[tuple[str, bool], ...]  # messages, and whether there are many


@cache
def _plan(kind: Descriptor) -> _Plan:
    fields = sorted(kind.fields, key=lambda field: field.number)
    ids = [
        field.name
        for field in fields
        if field.name == IDS
        or (field.name in OBJECT_FIELDS and field.cpp_type == field.CPPTYPE_STRING)
    ]
    parts = [
        (field.name, field.is_repeated)
        for field in fields
        if field.message_type is not None and _names_things(field.message_type)
    ]
    return _Plan(tuple(ids), tuple(parts))


@cache
def _names_things(kind: Descriptor, above: tuple[Descriptor, ...] = ()) -> bool:
    """Whether a message can have a subject."""
    return any(
        field.name in OBJECT_FIELDS
        or (
            field.message_type is not None
            and field.message_type not in above
            and _names_things(field.message_type, (*above, kind))
        )
        for field in kind.fields
    )
