"""A training of two ranks over plain sockets: compute, exchange the model, again.

    ring_job.py DIRECTORY MEGABYTES COMPUTE_S ITERATIONS

Started once for each GPU, with RANK, MASTER_ADDR and MASTER_PORT. Each rank sends what it has to
the other, from the same buffers in every iteration, on a connection of its own, as a ring does;
computing is sleep, so that a busy host does not take part. Rank 0 writes the seconds of an
iteration to DIRECTORY/JOB.ATTEMPT.json. The standard library only.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import statistics
import sys
import threading
import time
from pathlib import Path

PATIENCE_S = 30.0


def main() -> None:
    """Meet the other rank, train, tell."""
    directory, megabytes, compute_s, iterations = sys.argv[1:]
    rank = int(os.environ["RANK"])
    size = int(float(megabytes) * 1e6)
    buffers = [bytearray(size - size // 4), bytearray(size // 4)]
    out, back = met(rank)
    ends_s = []
    for _ in range(int(iterations)):
        time.sleep(float(compute_s))
        reading = threading.Thread(target=read, args=(back, size))
        reading.start()
        for buffer in buffers:
            out.sendall(buffer)
        reading.join()
        ends_s.append(time.monotonic())
    if rank == 0:
        took_s = [later - sooner for sooner, later in itertools.pairwise(ends_s)]
        name = f"{os.environ['DLQ_JOB_ID']}.{os.environ['DLQ_ATTEMPT']}.json"
        Path(directory, name).write_text(json.dumps({"period_s": statistics.median(took_s)}))


def met(rank: int) -> tuple[socket.socket, socket.socket]:
    """One connection to send on, which we made, and one to receive on, which the other made."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(place) as door:
            back, _ = door.accept()
        host, port = back.recv(64).decode().split()
        return socket.create_connection((host, int(port)), PATIENCE_S), back
    out = connected(place)
    with socket.create_server((out.getsockname()[0], 0)) as door:
        host, port = door.getsockname()
        out.sendall(f"{host} {port}".encode())
        back, _ = door.accept()
    return out, back


def connected(place: tuple[str, int]) -> socket.socket:
    """Rank 0 may not listen yet."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(place, PATIENCE_S)
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def read(back: socket.socket, size: int) -> None:
    """The other's part."""
    left = size
    while left:
        got = len(back.recv(min(left, 1 << 20)))
        if not got:
            raise ConnectionError("the other rank has gone")
        left -= got


if __name__ == "__main__":
    main()
