"""A command inside a job that runs, from the caller's side: bytes in, bytes out, how it ended.

A kept command outlives the master, and the line of its agent: it is taken up again, and no byte is
lost or repeated. Others are killed with their stream. All are killed with their caller. A command
is never started twice, because it may have acted already.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import grpc

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import Connection, apart
from dlq_client.line.errors import from_rpc_error, is_lost
from dlq_common.errors import DlqError, Unavailable

PIECE_BYTES = 64 * 1024
# Pieces of stdin that the command has not taken. Then the master and the agent always have room for
# more, and a signal or a confirmation never waits behind bytes.
_MOST_UNTAKEN = 3
_LARGE_PIECE_BYTES = 512 * 1024
_CONFIRMED_EVERY = 16
_CONFIRMED_BYTES = 2 * PIECE_BYTES
_COMES_BACK_S = 35.0  # the agent keeps the command for 45 s


class CommandInside:
    """One command. `outputs` is read by one thread; input may come from others."""

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        command: Sequence[str],
        *,
        node_rank: int = 0,
        terminal: tuple[int, int] | None = None,
        terminal_type: str = "",
        kept: bool = False,
        forward: bool = False,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Begin it; `terminal` (columns, rows) gives it one. `kept`: it outlives a lost line, and
        `tell` gets a word for people when one is lost. `forward`: see ExecSpec.
        """
        spec = exec_pb2.ExecSpec(command=command, forward=forward)
        if forward:
            spec.largest_piece_bytes = _LARGE_PIECE_BYTES
        if kept:
            spec.resume_key = secrets.token_urlsafe(32)
        if terminal is not None:
            spec.terminal = True
            spec.terminal_size.CopyFrom(_size(terminal))
            spec.terminal_type = terminal_type
        self._connection, self._tell = connection, tell
        self._exec = JobServiceStub(connection.channel).ExecJob
        self._opening = wire.ExecJobOpening(job_id=job_id, node_rank=node_rank, spec=spec)
        self._inputs = _Inputs(counted=kept)
        self._received = _Received(self._inputs)
        # No deadline: it may run for days. A dead line is noticed by its keepalive.
        self._call = apart(partial(self._exec, self._inputs.stream(self._opening)))

    def outputs(self) -> Iterator[exec_pb2.ExecOutput]:
        """The command's output as it comes; its exit comes last. Raises a DlqError when the master
        refuses, or when the command's end is not known.
        """
        patience = self._connection.patience(_COMES_BACK_S)
        try:
            while True:
                try:
                    for output in self._received.of(message.output for message in self._call):
                        patience.restored()
                        yield output
                        if output.HasField("ended"):
                            return
                    raise Unavailable("the command's stream ended before the command did")
                except grpc.RpcError as error:
                    failure = from_rpc_error(error, self._connection.identity.address)
                    if not self._comes_back(error, failure) or not patience.wait():
                        raise failure from None
                    self._call = apart(partial(self._exec, self._inputs.stream(self._opening)))
        finally:
            self.kill()

    @property
    def piece_bytes(self) -> int:
        """The most bytes for `stdin` at a time."""
        return self._inputs.piece_bytes

    def stdin(self, data: bytes) -> None:
        """At most `piece_bytes` of input; waits while the command does not read. No effect once it
        is over.
        """
        self._inputs.put(exec_pb2.ExecInput(stdin=data))

    def end_stdin(self) -> None:
        """There is no more of it."""
        self._inputs.put(exec_pb2.ExecInput(stdin_end=True))

    def resize(self, size: tuple[int, int]) -> None:
        """Its terminal has another size."""
        self._inputs.put(exec_pb2.ExecInput(terminal_size=_size(size)))

    def signal(self, name: str) -> None:
        """Send its first process a signal such as `INT`."""
        self._inputs.put(exec_pb2.ExecInput(signal=name))

    def kill(self) -> None:
        """End it, if it has not ended. May be called from any thread, and twice."""
        self._inputs.close()
        self._call.cancel()

    def _comes_back(self, error: grpc.RpcError, failure: DlqError) -> bool:
        """Whether to take the command up again. Unavailable: it was lost, and is not there now."""
        spec = self._opening.spec
        if not spec.resume_key or self._inputs.closed:
            return False
        if not is_lost(error):
            if spec.resumed:
                raise Unavailable(failure.what) from None
            return False
        if not spec.resumed:
            self._tell(f"the line is lost; trying for {_COMES_BACK_S:.0f} s to find the command")
        spec.resumed, spec.output_count = True, self._received.count
        return True


class _Received:
    """Counts outputs, and tells the agent from time to time how many have come."""

    def __init__(self, inputs: _Inputs) -> None:
        self.count = 0
        self._inputs = inputs
        self._confirmed = self._bytes = 0
        self._started = False

    def of(self, outputs: Iterator[exec_pb2.ExecOutput]) -> Iterator[exec_pb2.ExecOutput]:
        """The outputs of one stream for the caller; those of the protocol are taken here."""
        for output in outputs:
            match output.WhichOneof("body"):
                case "input_count":
                    self._inputs.done(output.input_count)
                case "started":
                    self._inputs.begun(output.started)
                    if not self._started:
                        self._started = True
                        yield output
                case _:
                    self._note(output)
                    yield output

    def _note(self, output: exec_pb2.ExecOutput) -> None:
        self.count += 1
        self._bytes += len(output.stdout) + len(output.stderr)
        if self.count - self._confirmed >= _CONFIRMED_EVERY or self._bytes >= _CONFIRMED_BYTES:
            self._inputs.confirm(self.count)
            self._confirmed, self._bytes = self.count, 0


class _Inputs:
    """Inputs that the command has not taken, for the stream that there is now, or the next one."""

    def __init__(self, *, counted: bool) -> None:
        """`counted`: the agent says which inputs the command has taken."""
        self._changed = threading.Condition()
        self._waiting: deque[exec_pb2.ExecInput] = deque()
        self._first = 0  # the number of the first that waits
        self._next = 0  # the number of the next to send
        self._bytes = 0
        self._confirmation = 0
        self._stream = 0
        self._may_send = True
        self._counted = counted
        self.closed = False
        self.piece_bytes = PIECE_BYTES

    def put(self, message: exec_pb2.ExecInput) -> None:
        """Add one. Stdin waits while much is not taken."""
        size = len(message.stdin)
        with self._changed:
            while (
                size and self._bytes + size > _MOST_UNTAKEN * self.piece_bytes and not self.closed
            ):
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
            if self._counted:
                self._confirmation = count
                self._changed.notify_all()

    def close(self) -> None:
        """There is no command any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def stream(self, opening: wire.ExecJobOpening) -> Iterator[wire.ExecJobRequest]:
        """The requests of a new stream; an earlier one ends."""
        with self._changed:
            self._stream += 1
            self._may_send = not opening.spec.resumed
            self._confirmation = 0
            self._changed.notify_all()
            first = wire.ExecJobRequest()
            first.opening.CopyFrom(opening)
            return self._requests(first, self._stream)

    def _requests(self, first: wire.ExecJobRequest, stream: int) -> Iterator[wire.ExecJobRequest]:
        yield first
        while (message := self._wait_for_next(stream)) is not None:
            yield wire.ExecJobRequest(input=message)

    def _wait_for_next(self, stream: int) -> exec_pb2.ExecInput | None:
        with self._changed:
            while True:
                if self.closed or self._stream != stream:
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
                self._changed.wait()

    def _drop(self, count: int) -> None:
        while self._first < min(count, self._next):
            self._bytes -= len(self._waiting.popleft().stdin)
            self._first += 1
        self._changed.notify_all()


def _size(size: tuple[int, int]) -> exec_pb2.TerminalSize:
    columns, rows = size
    return exec_pb2.TerminalSize(column_count=max(1, columns), row_count=max(1, rows))
