"""The inputs and outputs of a command are counted here, so that another line can go on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire

PIECE_BYTES = 64 * 1024
# Pieces of stdin that the command has not taken. Then the master and the agent always have room for
# more, and a signal or a confirmation never waits behind bytes.
_MOST_UNTAKEN = 3
_CONFIRMED_EVERY = 16
_CONFIRMED_BYTES = 8 * PIECE_BYTES  # half of what the agent keeps at least

Piece = exec_pb2.ExecOutput | memoryview
"""An output; or one that is stdout alone, by its bytes."""
Input = exec_pb2.ExecInput | bytes
"""An input; or the bytes of stdin."""


class CountedOutputs:
    """Counts outputs, and tells the agent from time to time how many have come."""

    def __init__(self, inputs: CountedInputs) -> None:
        self.count = 0
        self._inputs = inputs
        self._confirmed = self._bytes = 0
        self._started = False

    def of(self, outputs: Iterable[Piece]) -> Iterator[Piece]:
        """The outputs of one stream for the caller; those of the protocol are taken here."""
        for output in outputs:
            if isinstance(output, memoryview):
                self._note(len(output))
                yield output
                continue
            match output.WhichOneof("body"):
                case "input_count":
                    self._inputs.done(output.input_count)
                case "started":
                    self._inputs.begun(output.started)
                    if not self._started:
                        self._started = True
                        yield output
                case _:
                    self._note(len(output.stdout) + len(output.stderr))
                    yield output

    def _note(self, size: int) -> None:
        self.count += 1
        self._bytes += size
        if self.count - self._confirmed >= _CONFIRMED_EVERY or self._bytes >= _CONFIRMED_BYTES:
            self._inputs.confirm(self.count)
            self._confirmed, self._bytes = self.count, 0


class CountedInputs:
    """Inputs that the command has not taken, for the stream that there is now, or the next one."""

    def __init__(self, *, counted: bool) -> None:
        """`counted`: the agent says which inputs the command has taken."""
        self._changed = threading.Condition()
        self._waiting: deque[Input] = deque()
        self._first = 0  # the number of the first that waits
        self._next = 0  # the number of the next to send
        self._bytes = 0
        self._confirmation = 0
        self._stream = 0
        self._may_send = True
        self._held = False
        self._counted = counted
        self._leaving = False
        self.closed = False
        self.piece_bytes = PIECE_BYTES

    def put(self, message: Input) -> None:
        """Add one. Stdin waits while much is not taken."""
        size = len(message) if isinstance(message, bytes) else 0
        with self._changed:
            while size and self._bytes + size > self._most_bytes and not self.closed:
                self._changed.wait()
            self._waiting.append(message)
            self._bytes += size
            self._changed.notify_all()

    @property
    def _most_bytes(self) -> int:
        return _MOST_UNTAKEN * self.piece_bytes

    def done(self, count: int) -> None:
        """The command has taken so many in all."""
        with self._changed:
            self._drop(count)

    def begun(self, started: exec_pb2.ExecStarted) -> None:
        """The command runs on this stream. It goes on where its agent stands."""
        with self._changed:
            self._counted = started.kept
            if not started.input_count and not self._first:
                self.piece_bytes = max(PIECE_BYTES, started.largest_piece_bytes)
            if not self._may_send:
                self._next = max(self._first, started.input_count)
                self._may_send = True
            if not self._counted:
                self._drop(self._next)
            self._changed.notify_all()

    def confirm(self, count: int) -> None:
        """So many outputs have come in all."""
        with self._changed:
            if self._counted and not self._held:
                self._confirmation = count
                self._changed.notify_all()

    def hold_confirmations(self, held: bool) -> None:
        """No output is confirmed meanwhile: a new line begins with one that the agent still has."""
        with self._changed:
            self._held = held

    def leave(self) -> None:
        """The last word of the stream through the master: nobody comes back."""
        with self._changed:
            self._leaving = True
            self._changed.notify_all()

    def close(self) -> None:
        """There is no command any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def stream(self, opening: wire.ExecJobOpening) -> Iterator[wire.ExecJobRequest]:
        """The requests of a new stream; an earlier one ends."""
        stream = self._begin_stream(may_send=not opening.spec.resumed)
        first = wire.ExecJobRequest()
        first.opening.CopyFrom(opening)
        return self._requests(first, stream)

    def relayed(self, started: exec_pb2.ExecStarted, beat_s: float) -> Iterator[Input]:
        """The inputs of a new line, on which the command runs already. An empty word comes where
        nothing else has come for `beat_s`.
        """
        started.largest_piece_bytes = self.piece_bytes
        stream = self._begin_stream(may_send=False)
        self.begun(started)
        return self._pieces(stream, beat_s)

    def _begin_stream(self, *, may_send: bool) -> int:
        with self._changed:
            self._stream += 1
            self._may_send = may_send
            self._confirmation = 0
            self._changed.notify_all()
            return self._stream

    def _requests(self, first: wire.ExecJobRequest, stream: int) -> Iterator[wire.ExecJobRequest]:
        yield first
        for message in self._pieces(stream, None):
            if isinstance(message, bytes):
                message = exec_pb2.ExecInput(stdin=message)
            yield wire.ExecJobRequest(input=message)
        if self._leaving and self._stream == stream:
            yield wire.ExecJobRequest(input=exec_pb2.ExecInput(left=True))

    def _pieces(self, stream: int, beat_s: float | None) -> Iterator[Input]:
        while (message := self._wait_for_next(stream, beat_s)) is not None:
            yield message

    def _wait_for_next(self, stream: int, beat_s: float | None) -> Input | None:
        with self._changed:
            while True:
                if self.closed or self._leaving or self._stream != stream:
                    return None
                if self._confirmation:
                    count, self._confirmation = self._confirmation, 0
                    return exec_pb2.ExecInput(output_count=count)
                if self._may_send and self._next - self._first < len(self._waiting):
                    message = self._waiting[self._next - self._first]
                    self._next += 1
                    if not self._counted:
                        self._drop(self._next)
                    return message
                if not self._changed.wait(beat_s):
                    return exec_pb2.ExecInput(output_count=0)

    def _drop(self, count: int) -> None:
        while self._first < min(count, self._next):
            message = self._waiting.popleft()
            if isinstance(message, bytes):
                self._bytes -= len(message)
            self._first += 1
        self._changed.notify_all()
