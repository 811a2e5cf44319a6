"""A command inside a job that runs, from the caller's side: bytes in, bytes out, how it ended.

A kept command outlives the master, and the line of its agent: it is taken up again, and no byte is
lost or repeated. Others are killed with their stream. All are killed with their caller. A command
is never started twice, because it may have acted already.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.inside.counted import CountedInputs, CountedOutputs, Piece
from dlq_client.line.connection import Connection, apart
from dlq_client.line.errors import did_nothing, from_rpc_error, is_lost
from dlq_common.errors import DlqError, TryAgain, Unavailable

if TYPE_CHECKING:
    from dlq_client.inside.relayed import RelaySeeker

_LARGE_PIECE_BYTES = 512 * 1024
_LEAVING_S = 1.0
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
        comes_back: bool = False,
        forward: bool = False,
        tell: Callable[[str], object] = lambda _: None,
        bulky: bool = False,
        tell_more: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Begin it; `terminal` (columns, rows) gives it one. `kept`: it outlives a lost line, and
        `tell` gets a word for people when one is lost. `comes_back`: also a line of ours; then the
        command of a client that is killed waits in vain for it. `forward`: see ExecSpec. `bulky`:
        its bytes go through the relay where there is one, and `tell_more` hears which way they go.
        """
        spec = exec_pb2.ExecSpec(command=command, forward=forward)
        if forward:
            spec.largest_piece_bytes = _LARGE_PIECE_BYTES
        if kept:
            spec.resume_key = secrets.token_urlsafe(32)
            spec.says_left = comes_back
        if terminal is not None:
            spec.terminal = True
            spec.terminal_size.CopyFrom(_size(terminal))
            spec.terminal_type = terminal_type
        self._connection, self._tell = connection, tell
        channel = connection.direct if forward or bulky else connection.channel
        self._exec = JobServiceStub(channel).ExecJob
        self._opening = wire.ExecJobOpening(job_id=job_id, node_rank=node_rank, spec=spec)
        self._inputs = CountedInputs(counted=kept)
        self._received = CountedOutputs(self._inputs)
        self._relays: RelaySeeker | None = None
        self._refusals = 0  # by masters that did nothing: each of them may be asked in silence
        if bulky and kept:
            from dlq_client.inside.relayed import RelaySeeker  # it loads OpenSSL

            counted = (self._inputs, self._received)
            self._relays = RelaySeeker(connection, self._opening, *counted, tell_more)
        # No deadline: it may run for days. A dead line is noticed by its keepalive.
        # grpc's stubs do not say that it is a future, too.
        self._call: Any = apart(partial(self._exec, self._inputs.stream(self._opening)))

    def outputs(self) -> Iterator[exec_pb2.ExecOutput]:
        """The command's output as it comes; its exit comes last. Raises a DlqError when the master
        refuses, or when the command's end is not known.
        """
        for piece in self.pieces():
            if isinstance(piece, memoryview):
                piece = exec_pb2.ExecOutput(stdout=bytes(piece))
            yield piece

    def pieces(self) -> Iterator[Piece]:
        """The same; the bytes of stdout may come without a message, and without a copy."""
        patience = self._connection.patience(_COMES_BACK_S)
        try:
            while True:
                try:
                    for output in self._received.of(self._said()):
                        patience.restored()
                        yield output
                        if not isinstance(output, memoryview) and output.HasField("ended"):
                            return
                    raise Unavailable("the command's stream ended before the command did")
                except grpc.RpcError as error:
                    if self._relays is not None and self._relays.takes_over():
                        continue
                    failure = from_rpc_error(error, self._connection.identity.address)
                    if not self._comes_back(error, failure) or not patience.wait():
                        raise failure from None
                    self._call = apart(partial(self._exec, self._inputs.stream(self._opening)))
                except ConnectionError as error:  # of the relay
                    if self._inputs.closed:
                        raise Unavailable(str(error)) from None
                    self._take_up()
                    self._call = apart(partial(self._exec, self._inputs.stream(self._opening)))
        finally:
            self.kill()

    def _said(self) -> Iterator[Piece]:
        """The outputs of the present line, by the relay where that has taken over."""
        if self._relays is not None and self._relays.has_line:
            yield from self._relays.outputs()
            return
        for message in self._call:
            if self._relays is not None and message.output.started.relay:
                self._relays.begin()
            yield message.output

    @property
    def piece_bytes(self) -> int:
        """The most bytes for `stdin` at a time."""
        return self._inputs.piece_bytes

    def stdin(self, data: bytes) -> None:
        """At most `piece_bytes` of input; waits while the command does not read. No effect once it
        is over.
        """
        self._inputs.put(bytes(data))

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
        if self._opening.spec.says_left and not self._inputs.closed:
            self._inputs.leave()
            with suppress(grpc.FutureTimeoutError, grpc.FutureCancelledError):
                self._call.exception(timeout=_LEAVING_S)  # until the master has heard it
        self._inputs.close()
        if self._relays is not None:
            self._relays.close()
        self._call.cancel()

    def _comes_back(self, error: grpc.RpcError, failure: DlqError) -> bool:
        """Whether to take the command up again. Unavailable: it was lost, and is not there now."""
        spec = self._opening.spec
        if not spec.resume_key or self._inputs.closed:
            return False
        if not spec.resumed and did_nothing(error):  # it never began, and begins anew
            self._refusals += 1
            if self._refusals == len(self._connection.identity.address.split(",")):
                self._tell(f"{failure.what}; trying for {_COMES_BACK_S:.0f} s")
            return True
        if not is_lost(error):
            if spec.resumed and isinstance(failure, TryAgain):
                return True  # its former stream may still count as open, here or at the agent
            if spec.resumed:
                raise Unavailable(failure.what) from None
            return False
        if not spec.resumed:
            self._tell(f"the line is lost; trying for {_COMES_BACK_S:.0f} s to find the command")
        self._take_up()
        return True

    def _take_up(self) -> None:
        """The next stream takes the command up where it is."""
        spec = self._opening.spec
        spec.resumed, spec.output_count = True, self._received.count


def _size(size: tuple[int, int]) -> exec_pb2.TerminalSize:
    columns, rows = size
    return exec_pb2.TerminalSize(column_count=max(1, columns), row_count=max(1, rows))
