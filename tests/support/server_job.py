"""A training by workers and parameter servers over plain sockets: every message is a tensor.

    python server_job.py MODEL [--servers 2] [--workers 2] [--iterations 6]

Worker 0 prints one JSON object: seconds per iteration.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from support.model_shapes import MODELS, tensors

HEADER = struct.Struct("<QQ")  # tensor, bytes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--shrunk", type=int, default=1)
    parser.add_argument("--compute-s", type=float, default=0.05)
    options = parser.parse_args()
    sizes = tensors(options.model, shrunk=options.shrunk)
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(options.servers)]
    children = []
    for number, door in enumerate(doors):
        if not (pid := os.fork()):
            serve(door, sizes[number :: options.servers], options.workers, options.iterations)
            os._exit(0)
        children.append(pid)
    for number in range(options.workers):
        if not (pid := os.fork()):
            work(number, [door.getsockname() for door in doors], sizes, options)
            os._exit(0)
        children.append(pid)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))


def serve(door: socket.socket, sizes: list[int], workers: int, iterations: int) -> None:
    """Take the tensors of each worker and send the new ones back, when all have pushed."""
    held = [bytearray(size) for size in sizes]
    pushed = threading.Barrier(workers)

    def talk(conn: socket.socket) -> None:
        taken = [bytearray(size) for size in sizes]
        for _ in range(iterations):
            for place in range(len(sizes)):
                receive(conn, memoryview(bytearray(HEADER.size)))
                receive(conn, memoryview(taken[place]))
            pushed.wait()
            for place, tensor in enumerate(held):
                conn.sendall(HEADER.pack(place, len(tensor)))
                conn.sendall(tensor)

    talks = [threading.Thread(target=talk, args=(door.accept()[0],)) for _ in range(workers)]
    for one in talks:
        one.start()
    for one in talks:
        one.join()


def work(
    number: int, servers: list[tuple[str, int]], sizes: list[int], options: argparse.Namespace
) -> None:
    """Compute, push each tensor to its server, pull all of them."""
    to = [socket.create_connection(server) for server in servers]
    gradients = [bytearray(size) for size in sizes]
    began = []
    for _ in range(options.iterations):
        began.append(time.monotonic())
        until = time.monotonic() + options.compute_s
        while time.monotonic() < until:
            sum(range(1000))
        for place, gradient in enumerate(gradients):
            conn = to[place % len(to)]
            conn.sendall(HEADER.pack(place, len(gradient)))
            conn.sendall(gradient)
        for place, gradient in enumerate(gradients):
            receive(to[place % len(to)], memoryview(bytearray(HEADER.size)))
            receive(to[place % len(to)], memoryview(gradient))
    if number == 0:
        period_s = (began[-1] - began[0]) / (len(began) - 1)
        sys.stdout.write(f"{json.dumps({'period_s': period_s})}\n")
        sys.stdout.flush()


def receive(conn: socket.socket, into: memoryview) -> None:
    while into:
        got = conn.recv_into(into)
        if not got:
            raise ConnectionError("the other side is gone")
        into = into[got:]


if __name__ == "__main__":
    main()
