"""A command inside a job that runs, from the caller's side: bytes in, bytes out, how it ended.

It lives no longer than this stream: when the caller, the line or the master goes, it is killed.
Nothing is repeated, because the command may have acted already.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import grpc

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import Connection, apart
from dlq_client.line.errors import from_rpc_error
from dlq_common.errors import Unavailable

PIECE_BYTES = 64 * 1024
_WAITING = 8
_LOOK_S = 0.5  # how soon a thread that waits for room sees that the command is over


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
    ) -> None:
        """Begin it; `terminal` (columns, rows) gives it one."""
        spec = exec_pb2.ExecSpec(command=command)
        if terminal is not None:
            spec.terminal = True
            spec.terminal_size.CopyFrom(_size(terminal))
            spec.terminal_type = terminal_type
        opening = wire.ExecJobOpening(job_id=job_id, node_rank=node_rank, spec=spec)
        self._address = connection.identity.address
        self._requests: queue.Queue[wire.ExecJobRequest | None] = queue.Queue(_WAITING)
        self._requests.put(wire.ExecJobRequest(opening=opening))
        self._over = threading.Event()
        # No deadline: it may run for days. A dead line is noticed by its keepalive.
        begin = JobServiceStub(connection.channel).ExecJob
        self._call = apart(lambda: begin(iter(self._requests.get, None)))

    def outputs(self) -> Iterator[exec_pb2.ExecOutput]:
        """The command's output as it comes; its exit comes last. Raises a DlqError when the master
        refuses, or when the command's end is not known.
        """
        try:
            for message in self._call:
                yield message.output
                if message.output.HasField("ended"):
                    return
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._address) from None
        finally:
            self.kill()
        raise Unavailable("the command's stream ended before the command did")

    def stdin(self, data: bytes) -> None:
        """At most 64 KiB of input; waits while the command does not read. No effect once it is
        over.
        """
        self._input(exec_pb2.ExecInput(stdin=data))

    def end_stdin(self) -> None:
        """There is no more of it."""
        self._input(exec_pb2.ExecInput(stdin_end=True))

    def resize(self, size: tuple[int, int]) -> None:
        """Its terminal has another size; not sent while its input is stuck."""
        message = exec_pb2.ExecInput(terminal_size=_size(size))
        with suppress(queue.Full):
            self._requests.put_nowait(wire.ExecJobRequest(input=message))

    def signal(self, name: str) -> None:
        """Send its first process a signal such as `INT`; not sent while its input is stuck."""
        message = exec_pb2.ExecInput(signal=name)
        with suppress(queue.Full):
            self._requests.put_nowait(wire.ExecJobRequest(input=message))

    def kill(self) -> None:
        """End it, if it has not ended. May be called from any thread, and twice."""
        self._over.set()
        self._call.cancel()
        with suppress(queue.Full):
            self._requests.put_nowait(None)  # the thread that sends for us may rest

    def _input(self, message: exec_pb2.ExecInput) -> None:
        while not self._over.is_set():
            with suppress(queue.Full):
                self._requests.put(wire.ExecJobRequest(input=message), timeout=_LOOK_S)
                return


def _size(size: tuple[int, int]) -> exec_pb2.TerminalSize:
    columns, rows = size
    return exec_pb2.TerminalSize(column_count=max(1, columns), row_count=max(1, rows))
