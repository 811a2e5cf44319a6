"""Processes that reduce a buffer around a ring: a training of which one rank is slow, or hangs.

    RANK=R python ring_of_ranks.py DIRECTORY RANKS STEPS COMPUTE_S [LAST_S]

Computing is sleep. `COMPUTE_S` is that of this rank. In the step after the last one it computes for
`LAST_S`, and then sends its own part and waits; without `LAST_S` it hangs there instead. Each rank
says in DIRECTORY where it listens, and that all of its steps are done. Standard library only.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

PART = bytes(20_000)


def main() -> None:
    directory, ranks, steps, compute_s, *last = sys.argv[1:]
    rank, count = int(os.environ["RANK"]), int(ranks)
    to_next, from_last = met(Path(directory), rank, count)
    for _ in range(int(steps)):
        time.sleep(float(compute_s))
        for _ in range(count - 1):
            to_next.sendall(PART)
            receive(from_last)
    Path(directory, f"{rank}.done").touch()
    if last:
        time.sleep(float(last[0]))
        to_next.sendall(PART)
        receive(from_last)
    time.sleep(3600.0)


def met(directory: Path, rank: int, count: int) -> tuple[socket.socket, socket.socket]:
    """The connections to the next rank and from the one before."""
    door = socket.create_server(("127.0.0.1", 0))
    fresh = directory / f".{rank}"
    fresh.write_text(str(door.getsockname()[1]))
    fresh.rename(directory / f"{rank}.port")
    place = directory / f"{(rank + 1) % count}.port"
    while not place.exists():
        time.sleep(0.01)
    to_next = socket.create_connection(("127.0.0.1", int(place.read_text())))
    return to_next, door.accept()[0]


def receive(conn: socket.socket) -> None:
    """A whole part."""
    left = len(PART)
    while left:
        got = len(conn.recv(left))
        if not got:
            sys.exit(0)
        left -= got


if __name__ == "__main__":
    main()
