"""The audit: one line for every call that changes something or is denied, kept for ever.

Its files are a chain of hashes (audit_chain.py), in which a line that was changed or taken out is
found. A thread of its own writes; what was written is on disk at most a second later.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf.message import Message
from grpc import aio

from dlq_common.clock import Clock
from dlq_common.errors import DlqError, Unavailable
from dlq_common.instants import format_instant
from dlq_common.logs import get_logger
from dlq_common.pki import Identity
from dlq_master.rpc.audit_chain import Chain
from dlq_master.rpc.call import Call
from dlq_master.rpc.errors import HiddenFromCaller
from dlq_master.rpc.roles import JOIN, RULES

SYNC_EVERY_S = 0.5
MOST_WAITING = 10_000
LONGEST_OBJECT = 200
# What a call is about, by the name of the field that says so.
OBJECT_FIELDS = ("job_id", "node_id", "token_id", "name", "policy")


class Audit:
    """Appends to one file; `record` never blocks and never loses a line silently."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._log = get_logger("master.audit")
        self._waiting: queue.Queue[dict[str, str] | None] = queue.Queue(MOST_WAITING)
        self._chain = Chain(path)
        self._thread = threading.Thread(target=self._write_all, name="audit")
        self._thread.start()

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """A step between errors and the door: sees every decision."""
        try:
            yield
        except aio.AbortError:
            self._decided(call, "ABORTED")
            raise
        except HiddenFromCaller:
            self._decided(call, "HIDDEN", denied=True)
            raise
        except DlqError as error:
            denied = error.reason in ("UNAUTHENTICATED", "PERMISSION_DENIED")
            self._decided(call, error.reason, denied=denied)
            raise
        except asyncio.CancelledError:
            self._decided(call, "CANCELLED")  # the caller left; what it asked for may have happened
            raise
        except Exception:
            self._decided(call, "INTERNAL")
            raise
        else:
            self._decided(call, "OK")

    def record(
        self, who: Identity | None, method: str, about: str, decision: str, peer: str = ""
    ) -> None:
        """Put one line in. Unavailable when the disk has not taken lines for too long."""
        line = {
            "time": format_instant(self._clock.now_s()),
            "who": who.name if who else "",
            "role": who.role.value if who else "",
            "certificate": who.serial if who else "",
            "peer": peer,
            "method": method,
            "object": about[:LONGEST_OBJECT],
            "decision": decision,
        }
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            raise Unavailable("the audit log cannot be written") from None

    def close(self) -> None:
        """Write and sync what waits, then stop."""
        self._waiting.put(None)
        self._thread.join()
        self._chain.close()

    def _decided(self, call: Call, decision: str, *, denied: bool = False) -> None:
        rule = RULES.get(call.method)
        if denied or call.method == JOIN or (rule is not None and rule.changes):
            about = object_of(call.request) or object_of(call.response)
            self.record(call.identity, call.method, about, decision, call.context.peer())

    def _write_all(self) -> None:
        open_ended = True
        while open_ended:
            open_ended = self._write(self._waiting.get())
            sync_at_s = self._clock.boottime_s() + SYNC_EVERY_S
            while open_ended and (left_s := sync_at_s - self._clock.boottime_s()) > 0:
                try:
                    open_ended = self._write(self._waiting.get(timeout=left_s))
                except queue.Empty:
                    break
            self._sync()

    def _write(self, line: dict[str, str] | None) -> bool:
        """Append one line; False at the end of all."""
        if line is None:
            return False
        try:
            self._chain.append(line)
        except OSError as error:
            self._log.error("audit_not_written", error=str(error), **line)
        return True

    def _sync(self) -> None:
        try:
            self._chain.sync()
        except OSError as error:
            self._log.error("audit_not_synced", error=str(error))


def object_of(message: Message | None) -> str:
    """What a request or an answer is about: the first id it carries, also one level down."""
    if message is None:
        return ""
    for field, value in message.ListFields():
        if field.name in OBJECT_FIELDS and isinstance(value, str):
            return value
    for _, value in message.ListFields():
        if isinstance(value, Message) and (found := object_of(value)):
            return found
    return ""
