"""Output of one or several ranks on stdout: the last lines, and then new ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlq_cli.output.terminal import TerminalFilter
from dlq_client.line.connection import Connection
from dlq_client.watch import OUTAGE_S, LogPiece, read_log
from dlq_common.errors import DlqError, InvalidRequest, NotFound

# How much to ask for when some last lines are wanted, and when to stop asking for more.
BYTES_A_LINE = 256
MOST_TAIL_BYTES = 64 * 1024 * 1024
# A look at the present output does not wait for a silent node, as a follower does.
LOOK_OUTAGE_S = 15.0
# The master lets one person have 16 streams; a follower must not use up all of them.
MOST_FOLLOWED = 12
# How long to sit in a join before looking whether Ctrl-C came.
JOIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Outputs:
    """The ranks of one attempt, for reading their output."""

    connection: Connection
    job_id: str
    attempt: int
    ranks: Sequence[int]
    say: Callable[[str], None]
    # For a terminal: colours, and no other control sequences.
    filtered: bool = False
    # With several tasks on a node: the one to read, without its name before the lines.
    task: str = ""

    def mine(self, data: bytes) -> bytes:
        """Those of these whole lines that are of the chosen task."""
        if not self.task:
            return data
        prefix = f"[{self.task}] ".encode()
        lines = data.splitlines(keepends=True)
        return b"".join(line[len(prefix) :] for line in lines if line.startswith(prefix))

    def labelled(self) -> bool:
        """Whether lines need their rank before them."""
        return len(self.ranks) > 1


class Tail(NamedTuple):
    """The last lines of the present output, and the offset of its end."""

    data: bytes
    next_offset: int


class Printer:
    """Writes whole lines of one rank, with the rank before them if there are several."""

    def __init__(self, outputs: Outputs, rank: int, lock: threading.Lock) -> None:
        self._label = f"{rank}: ".encode() if outputs.labelled() else b""
        self._filter = TerminalFilter() if outputs.filtered else None
        self._outputs = outputs
        self._lock = lock
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Print at once, but never half a line between the lines of another rank."""
        self._print(self._filter.feed(data) if self._filter else data)

    def finish(self) -> None:
        """Print a last line that has no newline."""
        if self._outputs.task:
            self._print(b"\n")
            return
        left = self._filter.finish() if self._filter else b""
        if self._rest:
            self._print(left + b"\n")
        else:
            self._put(left)

    def _print(self, data: bytes) -> None:
        if self._outputs.task:
            whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
            data = self._outputs.mine(whole + newline)
        elif self._label:
            *lines, self._rest = (self._rest + data).split(b"\n")
            data = b"".join(self._label + line + b"\n" for line in lines)
        self._put(data)

    def _put(self, data: bytes) -> None:
        if data:
            with self._lock:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()


def print_tails(outputs: Outputs, lines: int | None) -> None:
    """The last `lines` of each rank (None: all), one rank after the other."""
    lock = threading.Lock()
    for rank in outputs.ranks:
        printer = Printer(outputs, rank, lock)
        printer.write(_tail(outputs, rank, lines).data)
        printer.finish()


def follow_ranks(outputs: Outputs, lines: int | None) -> None:
    """The last `lines` of each rank, then all new ones, until the attempt has ended."""
    if len(outputs.ranks) > MOST_FOLLOWED:
        raise InvalidRequest(
            f"{len(outputs.ranks)} ranks are too many to follow at once: {MOST_FOLLOWED} at most",
            hint="follow one with --rank R, or read all without -f",
        )
    lock = threading.Lock()
    failures: list[DlqError | OSError] = []
    threads = [
        threading.Thread(
            target=_follow_one, args=(outputs, rank, lines, lock, failures), daemon=True
        )
        for rank in outputs.ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        # Without a reader (`dlq logs -f 17 | head`) no rank has anything left to do.
        while thread.is_alive() and not any(isinstance(each, OSError) for each in failures):
            thread.join(JOIN_S)
    if failures:
        raise failures[0]


def _follow_one(
    outputs: Outputs,
    rank: int,
    lines: int | None,
    lock: threading.Lock,
    failures: list[DlqError | OSError],
) -> None:
    printer = Printer(outputs, rank, lock)
    try:
        start = 0
        if lines is not None:
            tail = _tail(outputs, rank, lines)
            printer.write(tail.data)
            start = tail.next_offset
        for piece in _pieces(outputs, rank, start, follow=True):
            printer.write(piece.data)
        printer.finish()
    except NotFound:
        # An attempt that never started a process on this node has no output.
        return
    except (DlqError, OSError) as error:
        failures.append(error)


def _tail(outputs: Outputs, rank: int, lines: int | None) -> Tail:
    """The last lines of the present output."""
    if lines is None:
        return _kept(outputs, rank, 0)
    wanted = max(4096, lines * BYTES_A_LINE)
    while True:
        tail = _kept(outputs, rank, -wanted)
        begins_at = tail.next_offset - len(tail.data)
        enough = outputs.mine(tail.data).count(b"\n") > lines
        if enough or begins_at == 0 or len(tail.data) < wanted or wanted >= MOST_TAIL_BYTES:
            return Tail(_last_lines_of(outputs, tail.data, lines), tail.next_offset)
        wanted *= 8


def _last_lines_of(outputs: Outputs, data: bytes, lines: int) -> bytes:
    """The last lines as they came, with that many chosen ones among them."""
    if not outputs.task:
        return _last_lines(data, lines)
    prefix = f"[{outputs.task}] ".encode()
    every = data.splitlines(keepends=True)
    mine = [at for at, line in enumerate(every) if line.startswith(prefix)]
    return (
        b"".join(every[mine[-lines] :])
        if lines and len(mine) >= lines
        else (b"".join(every) if lines else b"")
    )


def _kept(outputs: Outputs, rank: int, offset: int) -> Tail:
    data, end = bytearray(), max(0, offset)
    for piece in _pieces(outputs, rank, offset, follow=False):
        data += piece.data
        end = piece.offset + len(piece.data)
    return Tail(bytes(data), end)


def _pieces(outputs: Outputs, rank: int, offset: int, *, follow: bool) -> Iterator[LogPiece]:
    """The output from an offset; gaps are reported to people."""
    for piece in read_log(
        outputs.connection,
        outputs.job_id,
        attempt=outputs.attempt,
        node_rank=rank,
        offset=offset,
        follow=follow,
        outage_s=OUTAGE_S if follow else LOOK_OUTAGE_S,
        on_lost=lambda error: outputs.say(f"{error.what}; still trying"),
    ):
        if piece.missing_bytes:
            outputs.say(f"{piece.missing_bytes} bytes of rank {rank} were not kept")
        yield piece


def _last_lines(data: bytes, lines: int) -> bytes:
    """The last lines of some bytes; an unfinished line counts."""
    if lines == 0:
        return b""
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return data
    return data[at + 1 :]
