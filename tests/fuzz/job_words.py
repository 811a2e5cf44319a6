"""What a job's processes may say to the programs beside them: real words, changed ones, and noise.

A job writes files that its agent reads (a beat, a list of steps, the mark of a checkpoint). It may
talk to the servers of its steps and of its stdin. Where it has the rights of the agent, it reaches
the pipe of its shim too.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attack.forging import Forger

MOST_NOISE: Final = 4_096
BEATS: Final = (
    b'{"step": 120, "total": 1000, "loss": 2.25, "step_s": 0.31, "last_save_s": 4.5}',
    b'{"step": 7, "work_steps": 7, "work_log_sum": -3.5, "work_log_square_sum": 9.25}',
)
STEPS: Final = (
    b"dlq-steps\t1\t0\t0\n0\ttrain\t2\t8\trunning\t0\t1700000000000\t0\t1048576\t250000\tn1,n2\n",
    b"dlq-steps\t1\t2\t1\t4096\t1000\n3\tsh\t1\t1\tended\t1\t1700000000000\t1700000001000\t0\t0\tn1\n",
)
MARKS: Final = (b'{"step": 300, "files": ["a.pt", "b.pt"]}', b'{"step": 9223372036854775807}')
ORDERS: Final = (b"1 1 1 signal 10\n", b"1 1 1 hold 600000\n", b"1 1 1 stop 15 60000 5000\n")
VERBS: Final = {b"signal": 1, b"kill": 0, b"stop": 3, b"hold": 1}  # with so many numbers
LONGEST_LINE: Final = 4_095  # the shim drops what it has of a longer one
FRAME: Final = struct.Struct("=IHH")  # of the servers of steps: length, type, task
TYPES: Final = (*range(1, 7), *range(16, 27), *range(32, 36), *range(48, 53))
ASK_SIGNAL: Final = 5


class JobWords:
    """All of them, from one seed. `real`: what a real `srun` has said to its server."""

    def __init__(self, seed: str, real: tuple[bytes, ...] = ()) -> None:
        self.chance = random.Random(seed)
        self._forger, self._real = Forger(seed, {}), real
        self._begun = b""  # of a line to the shim that has no end yet

    def beat(self) -> bytes:
        return self._changed(BEATS)

    def steps(self) -> bytes:
        return self._changed(STEPS)

    def mark(self) -> bytes:
        return self._changed(MARKS)

    def order(self) -> bytes:
        """For the shim. All of them must be written, each in one piece. None is an order that the
        shim has to obey, also not together with those before it: a job with the shim's rights may
        end itself.
        """
        while True:
            said = self._changed(ORDERS)[:4_000]
            *lines, rest = (self._begun + said).split(b"\n")
            if not any(map(is_order, lines)):
                self._begun = rest[-LONGEST_LINE:]
                return said

    def steps_line(self) -> bytes:
        """For the server of steps: some frames, real ones, changed ones and noise. It may not ask
        for a signal: the job would end itself.
        """
        kind = self.chance.random()
        if kind < 0.2:
            return self._noise()
        if kind < 0.5 and self._real:
            return self._forger.bend(self.chance.choice(self._real))
        return b"".join(self._frame() for _ in range(self.chance.randint(1, 4)))

    def stdin_line(self) -> bytes:
        """For the server of stdin: data, sizes, cut and huge frames, and noise."""
        if self.chance.random() < 0.3:
            return self._noise()
        body = self._noise()
        length = self.chance.choice((len(body), 0, 4, 1 << 31, (1 << 32) - 1))
        letter = self.chance.choice((b"d", b"s", b"\0", b"\xff"))
        return letter + struct.pack("!I", length) + body

    def _frame(self) -> bytes:
        body = self._noise()
        length = self.chance.choice((len(body), len(body), 0, 1, 1 << 22, (1 << 32) - 1))
        type_ = self.chance.choice((*TYPES, self.chance.randrange(1 << 16)))
        type_ = 0 if type_ == ASK_SIGNAL else type_
        return FRAME.pack(length, type_, self.chance.choice((0, 1, 0xFFFF))) + body

    def _noise(self) -> bytes:
        return self.chance.randbytes(self.chance.choice((0, 1, 7, 64, 600, MOST_NOISE)))

    def _changed(self, real: tuple[bytes, ...]) -> bytes:
        kind = self.chance.random()
        if kind < 0.1:
            return self.chance.choice(real)
        return self._noise() if kind < 0.25 else self._forger.bend(self.chance.choice(real))


def is_order(line: bytes) -> bool:
    """Whether the shim of attempt 1, launched in epoch 1, obeys it (shim/ctl.c). Of a line that was
    too long it reads the rest alone, so an order at the end counts too.
    """
    words = [word for word in line.partition(b"\0")[0].split(b" ") if word]
    return any(_is_lawful(words[at:]) for at in range(len(words)))


def _is_lawful(words: Sequence[bytes]) -> bool:
    """A higher epoch is that of a newer master."""
    if len(words) < 4 or not words[0].endswith(b"1"):
        return False
    _, epoch, attempt, verb, *numbers = words
    fence = epoch.isdigit() and epoch.strip(b"0") and attempt.lstrip(b"0") == b"1"
    return bool(fence) and VERBS.get(verb) == len(numbers) and all(map(bytes.isdigit, numbers))


@contextmanager
def dialled(path: Path) -> Iterator[socket.socket]:
    """A line to a server in a directory of any depth."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10.0)
        line.connect(str(path))
        yield line


@contextmanager
def admitted(port: int, key: bytes, rank: int) -> Iterator[socket.socket]:
    """A line to the server of a rank's steps, with the job's own proof."""
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as line:
        theirs = _exactly(line, 32)
        nonces = theirs + bytes(32)
        said = f"asks {rank}".encode().ljust(16, b"\0") + nonces
        line.sendall(bytes(32) + hmac.new(key, said, hashlib.sha256).digest())
        _exactly(line, 32)
        yield line


def _exactly(line: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        piece = line.recv(count - len(got))
        if not piece:
            raise ConnectionError("the server has hung up")
        got += piece
    return got
