"""Two processes that reduce a few buffers between them, again and again: a training without a
framework.

    RANK=0|1 WORLD_SIZE=2 MASTER_PORT=N python ring_of_two.py [ITERATIONS]

Without a number it goes on until it is killed. Standard library only; BUFFERS are the model's
bytes.
"""

import os
import socket
import sys
import time

BUFFERS = (60_000, 30_000, 10_000)
PAUSE_S = 0.02


def main() -> None:
    iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 40
    peer = connected()
    model = memoryview(bytearray(sum(BUFFERS)))
    theirs = bytearray(sum(BUFFERS))
    for _ in range(iterations):
        time.sleep(PAUSE_S)
        begin = 0
        for size in BUFFERS:
            peer.sendall(model[begin : begin + size])
            begin += size
        receive(peer, memoryview(theirs))


def connected() -> socket.socket:
    """The other one; rank 0 waits for it."""
    at = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if os.environ["RANK"] == "0":
        return socket.create_server(at).accept()[0]
    while True:
        try:
            return socket.create_connection(at)
        except ConnectionRefusedError:
            time.sleep(0.01)


def receive(conn: socket.socket, into: memoryview) -> None:
    """All of it."""
    while into:
        got = conn.recv_into(into)
        if not got:
            sys.exit(0)  # the other one was faster
        into = into[got:]


if __name__ == "__main__":
    main()
