"""Our stdin, byte for byte, to the rank 0 of a job that may not run yet.

A line that is cut, or a daemon that restarts, loses and repeats no byte. The rank says how many it
has taken, and all others are kept here. Before the first byte the job is tied to this
client, and is never run again. When this process is killed, the master ends a tied job after
[jobs] attend_silence. Before the first byte the job goes on without it, and its stdin stays open.
`dlq attach --stdin` may then come: its bytes follow those that the rank has taken. One client at a
time writes. A second one is refused while the first has a line, and takes over where it has none.
"""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack

from dlq_cli.interactive.attendance import Attendance
from dlq_cli.interactive.rank_stdin import (
    OTHER_WRITES,
    TAKEN_OVER,
    running_attempt,
    still_runs,
    writing,
)
from dlq_cli.interactive.stdin_reader import StdinReader
from dlq_cli.interactive.terminal import STDIN_READER
from dlq_client.inside.command import CommandInside
from dlq_client.inside.counted import PIECE_BYTES
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_common.errors import DlqError, IllegalTransition, TryAgain, Unavailable

MOST_KEPT_BYTES = 1 << 20
WINDOW_BYTES = 4 * PIECE_BYTES  # on their way; below what waits in CommandInside
_AGAIN_S = 0.2
_HEAD = struct.Struct("!cI")
_DATA, _END = b"d", b"e"


_REFUSALS = {
    OTHER_WRITES: "another client writes to its stdin",
    TAKEN_OVER: "another client has taken its stdin over",
}


class OtherWriter(ValueError):
    """Another client has the stdin of the job."""


class Kept:
    """The bytes of stdin that were read, and may not be taken yet. One thread reads, one sends, and
    one hears how many are taken.
    """

    def __init__(self, first: bytes) -> None:
        self.changed = threading.Condition()
        self._bytes = bytearray(first)
        self._first = 0  # the offset of the first of them
        self._closed = False
        self.at_end = False

    def begin_at(self, offset: int) -> None:
        """The first byte that was read here has this offset: others were taken before."""
        with self.changed:
            self._first += offset

    @property
    def read_bytes(self) -> int:
        """How many have been read in all."""
        return self._first + len(self._bytes)

    def add(self, data: bytes) -> None:
        """Keep the next bytes of stdin. Waits while MOST_KEPT_BYTES are kept."""
        with self.changed:
            self.changed.wait_for(lambda: self._closed or len(self._bytes) < MOST_KEPT_BYTES)
            self._bytes += data
            self.changed.notify_all()

    def end(self) -> None:
        """Stdin has ended."""
        with self.changed:
            self.at_end = True
            self.changed.notify_all()

    def close(self) -> None:
        """Let `add` wait no longer."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def forget(self, taken_bytes: int) -> None:
        """Drop bytes that the rank has taken. ValueError: the rank has begun anew without them."""
        with self.changed:
            if taken_bytes < self._first:
                raise ValueError("the job was run again after it had read its stdin")
            del self._bytes[: taken_bytes - self._first]
            self._first = max(self._first, taken_bytes)
            self.changed.notify_all()

    def at(self, offset: int) -> bytes:
        """A piece from an offset on."""
        start = offset - self._first
        return bytes(self._bytes[start : start + PIECE_BYTES])


class PipedStdin:
    """A thread that brings stdin to one job, until the job's end or that of stdin."""

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        descriptor: int,
        say: Callable[[str], None],
        *,
        first: bytes = b"",
        refused: Callable[[str], None] | None = None,
    ) -> None:
        """`first` was read already. `refused`: of a client that joins a job which it has not
        submitted: told why it may not write, and the job goes on.
        """
        self._connection = connection
        self._jobs = Jobs(connection)
        self._job_id = job_id
        self._say = say
        self._kept = Kept(first)
        self._reader = StdinReader(descriptor, take=self._kept.add, at_end=self._kept.end)
        self._refused = refused
        self._token = secrets.token_hex(8)
        self._wrote = False  # the rank has heard of us
        self._tied = ExitStack()
        self._is_tied = False

    def __enter__(self) -> PipedStdin:
        if self._refused is not None:  # it may be tied to the client before us
            self._tied.enter_context(self._attendance())
        self._reader.start()
        threading.Thread(target=self._bring, daemon=True, name=STDIN_READER).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tied.close()
        self._kept.close()
        self._reader.stop()

    def _bring(self) -> None:
        if self._refused is None:
            with self._kept.changed:  # an idle pipe costs nothing
                self._kept.changed.wait_for(lambda: self._kept.at_end or self._kept.read_bytes)
        try:
            self._bring_to_attempts()
        except (DlqError, ValueError) as error:
            what = error.what if isinstance(error, DlqError) else str(error)
            if self._refused is not None:
                self._refused(what)
                return
            if isinstance(error, OtherWriter):
                self._say(f"{what}: job {self._job_id} goes on with that one")
                return
            self._say(f"stdin cannot be brought to job {self._job_id}, which is cancelled: {what}")
            self._cancel()

    def _bring_to_attempts(self) -> None:
        """To each attempt, until one has begun to read and has it all. An empty stdin ends for each
        of them.
        """
        attempt = 0
        while attempt := running_attempt(self._connection, self._job_id, after=attempt):
            while not (brought := self._brought()):
                threading.Event().wait(_AGAIN_S)
                if not still_runs(self._jobs, self._job_id, attempt):
                    break
            if brought and self._is_tied:
                return

    def _brought(self) -> bool:
        """Whether the attempt that runs has all of it; False: the line was cut on the way."""
        words = writing(self._token, again=self._wrote)
        inside = CommandInside(self._connection, self._job_id, words)
        heard = _Heard(inside, self._kept, joins=self._refused is not None and not self._wrote)
        try:
            heard.begin()
            sent_bytes = heard.wait(lambda: heard.taken_bytes is not None)
            offset = heard.taken_bytes
            self._wrote = self._wrote or offset is not None
            if heard.refusal:
                raise OtherWriter(heard.refusal)
            while sent_bytes and offset is not None and not heard.at_end:
                data = self._next(heard, offset)
                if data:
                    self._tie()
                    inside.stdin(_HEAD.pack(_DATA, len(data)))
                    inside.stdin(data)
                    offset += len(data)
                elif self._kept.at_end and offset == self._kept.read_bytes:
                    inside.stdin(_HEAD.pack(_END, 0))
                    heard.wait(lambda: heard.at_end)
                    break
                elif heard.over:
                    break
            heard.check()
            return heard.at_end
        except (Unavailable, TryAgain, IllegalTransition):
            return False
        finally:
            inside.kill()

    def _next(self, heard: _Heard, offset: int) -> bytes:
        """The next piece, when there is one and the window has room; empty: look again."""
        kept = self._kept
        with kept.changed:
            kept.changed.wait_for(
                lambda: (
                    heard.over
                    or heard.at_end
                    or (kept.at_end and offset == kept.read_bytes)
                    or (
                        offset < kept.read_bytes
                        and offset - (heard.taken_bytes or 0) < WINDOW_BYTES
                    )
                )
            )
            return b"" if heard.over or heard.at_end else kept.at(offset)

    def _tie(self) -> None:
        if not self._is_tied:
            self._jobs.attend(self._job_id, bind=True)
            if self._refused is None:
                self._tied.enter_context(self._attendance())
            self._is_tied = True

    def _attendance(self) -> Attendance:
        return Attendance(self._connection, self._job_id, lambda _job: None)

    def _cancel(self) -> None:
        try:
            self._jobs.cancel(self._job_id)
        except DlqError as error:
            self._say(error.what)


class _Heard:
    """The words of the rank: how many bytes it has taken, and that it takes no more."""

    def __init__(self, inside: CommandInside, kept: Kept, *, joins: bool) -> None:
        self._inside = inside
        self._kept = kept
        self._joins = joins  # the rank may have taken bytes of others
        self._error: DlqError | ValueError | None = None
        self.refusal = ""
        self.taken_bytes: int | None = None
        self.at_end = False
        """The program has all of it, or reads no more."""
        self.over = False

    def begin(self) -> None:
        threading.Thread(target=self._hear, daemon=True, name="stdin-taken").start()

    def wait(self, is_so: Callable[[], bool]) -> bool:
        """Until it is so, or nothing more will be heard; whether it is so."""
        with self._kept.changed:
            self._kept.changed.wait_for(lambda: self.over or is_so())
            return is_so()

    def check(self) -> None:
        """Raise what the stream ended for."""
        if self._error is not None and not self.at_end:
            raise self._error

    def _hear(self) -> None:
        rest = b""
        try:
            for output in self._inside.outputs():
                if output.HasField("ended"):
                    self.refusal = _REFUSALS.get(output.ended.exit_code, "")
                *lines, rest = (rest + output.stdout).split(b"\n")
                for line in lines:
                    self._take(line.decode("ascii", "replace"))
        except (DlqError, ValueError) as error:
            self._error = error
        with self._kept.changed:
            self.over = True
            self._kept.changed.notify_all()

    def _take(self, line: str) -> None:
        word, _, number = line.partition(" ")
        if word == "taken" and self._joins:
            self._joins = False
            self._kept.begin_at(int(number))
        elif word == "taken" and int(number) > self._kept.read_bytes:
            self.refusal = _REFUSALS[TAKEN_OVER]
        elif word == "taken":
            self._kept.forget(int(number))
        with self._kept.changed:
            if word == "taken":
                self.taken_bytes = int(number)
            self.at_end = self.at_end or word in ("end", "closed")
            self._kept.changed.notify_all()
