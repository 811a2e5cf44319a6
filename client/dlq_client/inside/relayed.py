"""A command whose bytes go through the relay beside the master, as soon as there is a line there.

The command begins through the master. A thread asks for a line through the relay meanwhile, and
takes the command up on it, as a caller does who comes back. Where that fails, or the line breaks,
the command goes on through the master, and the thread tries again from time to time. No byte is
lost or repeated: both ends count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.inside.counted import CountedInputs, CountedOutputs, Input, Piece
from dlq_client.inside.relay_line import (
    BEAT_S,
    SILENCE_S,
    LineLost,
    LineOver,
    RelayLine,
    dial,
    full_address,
    stdin_head,
    stdout_of,
)
from dlq_client.line.connection import Connection
from dlq_client.line.errors import from_rpc_error
from dlq_common.errors import Unavailable

FIRST_REST_S: Final = 15.0  # above the time for which the relay keeps half a line
LONGEST_REST_S: Final = 300.0
STARTED_S: Final = 10.0
_COUNTED: Final = ("stdout", "stderr", "ended")


class RelayedLine:
    """One line through the relay, and the call that lasts as long: with it the master ends it."""

    def __init__(self, line: RelayLine, control: Any, address: str) -> None:
        self.address = address
        self._line, self._control = line, control
        self._first = 0
        self._early: list[Piece] = []

    def take_up(self, spec: exec_pb2.ExecSpec) -> exec_pb2.ExecStarted:
        """The command runs on this line from now on. Raises LineLost where it does not."""
        self._first = spec.output_count
        self._say(exec_pb2.RelayedInput(spec=spec))
        with suppress(LineOver):
            self._early = self._hear(STARTED_S)
            first = self._early.pop(0)
            if not isinstance(first, memoryview) and first.HasField("started"):
                return first.started
        raise LineLost("the agent does not find the command")

    def outputs(self, had: int) -> Iterator[Piece]:
        """The outputs of the command from this number on. Raises LineLost, and RpcError where the
        master has ended the line.
        """
        number = self._first
        while True:
            try:
                heard = self._early or self._hear(SILENCE_S)
            except LineOver:
                raise self._refusal() from None
            self._early = []
            for output in heard:
                if isinstance(output, memoryview) or output.WhichOneof("body") in _COUNTED:
                    number += 1
                    if number <= had:
                        continue  # it has come through the master meanwhile
                yield output

    def bring(self, inputs: Iterator[Input]) -> None:
        """Write these until they end, or the line does."""
        try:
            for each in inputs:
                if isinstance(each, bytes):
                    self._line.begin(stdin_head(len(each)), each)
                    self._write()
                else:
                    self._say(exec_pb2.RelayedInput(input=each))
        except LineLost:
            self._line.end(cleanly=False)  # the reader hears it

    def drop(self) -> None:
        """End the line so that its agent waits for us."""
        self._line.end(cleanly=False)

    def leave(self) -> None:
        """End the line and the command, if it still runs here; or forget a dropped line."""
        self._line.end(cleanly=True)
        self._control.cancel()

    def _say(self, message: exec_pb2.RelayedInput) -> None:
        self._line.begin(message.SerializeToString())
        self._write()

    def _write(self) -> None:
        while not self._line.write():
            self._line.await_ready(writing=True, timeout_s=SILENCE_S)

    def _hear(self, patience_s: float) -> list[Piece]:
        try:
            while not (heard := self._line.read()):
                self._line.await_ready(writing=False, timeout_s=patience_s)
            return [stdout_of(each) or exec_pb2.ExecOutput.FromString(each) for each in heard]
        except (ValueError, DecodeError) as error:
            raise Unavailable(f"the node does not speak as a command does: {error}") from None

    def _refusal(self) -> Exception:
        """Why the line was ended by another side than ours."""
        try:
            error = self._control.exception(timeout=2.0)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            error = None
        if isinstance(error, grpc.RpcError):
            return error
        return Unavailable("the agent has ended the command's line, and the command with it")


class RelaySeeker:
    """Seeks such lines for one command."""

    def __init__(
        self,
        connection: Connection,
        opening: wire.ExecJobOpening,
        inputs: CountedInputs,
        received: CountedOutputs,
        tell: Callable[[str], object],
    ) -> None:
        """`tell` gets words on which way the bytes go."""
        self._connection, self._inputs, self._received = connection, inputs, received
        self._opening, self._tell = opening, tell
        self._told = ""
        self._pending: RelayedLine | None = None
        self._present: RelayedLine | None = None
        self._former: RelayedLine | None = None
        self._switching = threading.Lock()
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def has_line(self) -> bool:
        """Whether the next outputs come through the relay."""
        return self._pending is not None

    def begin(self) -> None:
        """The command runs through the master, and that has a relay."""
        former, self._former = self._former, None
        if former is not None:
            former.leave()
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._seek, daemon=True, name="relay")
            self._thread.start()

    def takes_over(self) -> bool:
        """Whether a line through the relay is why the stream through the master has ended."""
        with self._switching:
            return self.has_line

    def outputs(self) -> Iterator[Piece]:
        """Those of the line. Raises as RelayedLine does; then there is no line."""
        line, self._pending = self._pending, None
        assert line is not None
        self._present = line
        try:
            yield from line.outputs(self._received.count)
        except LineLost as error:
            line.drop()
            self._say_way(f"bytes go through the master: {error}")
            raise
        finally:
            # Its call lasts until the command runs elsewhere: its end would end the command.
            self._present, self._former = None, line

    def close(self) -> None:
        """The command is over."""
        self._closed.set()
        self._wanted.set()
        for each in (self._pending, self._present, self._former):
            if each is not None:
                each.leave()

    # ---- a thread of its own

    def _seek(self) -> None:
        rest_s = FIRST_REST_S
        while self._wanted.wait() and not self._closed.is_set():
            try:
                line = self._dialled()
                self._switch(line)
                rest_s = FIRST_REST_S
            except grpc.RpcError as error:
                refused = from_rpc_error(error, self._connection.identity.address)
                self._say_way(f"bytes go through the master: {refused.what}")
            except (LineLost, Unavailable) as error:
                self._say_way(f"bytes go through the master: {error}")
            self._closed.wait(rest_s)
            rest_s = min(2.0 * rest_s, LONGEST_REST_S)

    def _dialled(self) -> RelayedLine:
        asked = wire.ExecJobRequest()
        asked.opening.CopyFrom(self._opening)
        spec = asked.opening.spec
        spec.resumed = spec.relay = True
        identity = self._connection.identity
        control: Any = JobServiceStub(self._connection.direct).ExecJob(iter((asked,)))
        try:
            told = next(control).output.relay
            master = self._connection.dialled
            line = dial(told.address, master, told.ticket, identity, expected=told.node)
        except StopIteration:
            raise LineLost("the master has no relay") from None
        except BaseException:
            control.cancel()
            raise
        return RelayedLine(line, control, full_address(told.address, master))

    def _switch(self, line: RelayedLine) -> None:
        spec = exec_pb2.ExecSpec()
        spec.CopyFrom(self._opening.spec)
        spec.resumed = True
        with self._switching:
            self._inputs.hold_confirmations(True)
            try:
                spec.output_count = self._received.count
                started = line.take_up(spec)
                inputs = self._inputs.relayed(started, BEAT_S)
                self._wanted.clear()
                self._pending = line
            except BaseException:
                self._former = line
                line.drop()
                raise
            finally:
                self._inputs.hold_confirmations(False)
                self._inputs.confirm(self._received.count)
        if self._closed.is_set():
            line.leave()
        self._say_way(f"bytes go through the relay at {line.address}")
        threading.Thread(target=line.bring, args=(inputs,), daemon=True, name="relay-out").start()

    def _say_way(self, words: str) -> None:
        if words != self._told and not self._closed.is_set():
            self._told = words
            self._tell(words)
