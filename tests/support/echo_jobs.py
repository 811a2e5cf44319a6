"""Jobs that listen on a port and say which, and one that sends back what it gets."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from support.harness import Daemons
from support.waiting import wait_until

ECHO = """
import socket, threading
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(300)
print("port", listening.getsockname()[1], flush=True)
def answer(line):
    while data := line.recv(65536):
        line.sendall(data)
    line.close()
while True:
    line, _ = listening.accept()
    threading.Thread(target=answer, args=(line,), daemon=True).start()
"""


def said_port(output: Callable[[], str]) -> int:
    """The port that a job names in its output."""
    found = wait_until(
        lambda: re.findall(r"port (\d+)", output()), what="the job's port", timeout_s=60.0
    )
    return int(found[0])


@contextmanager
def job_with_port(
    daemons: Daemons, program: str, *words: str, node: str = ""
) -> Iterator[tuple[str, int]]:
    """A job of this program, and the port that it says; it is killed at the end of the block."""
    where = ("-w", node) if node else ()
    python = (sys.executable, "-c", program, *words)
    job_id = daemons.said("submit", "--parsable", "-G", "1", *where, "--", *python).strip()
    try:
        yield job_id, said_port(lambda: daemons.dlq("logs", job_id).out)
    finally:
        daemons.dlq("cancel", "--kill", job_id)


def echoing(daemons: Daemons, node: str = "") -> AbstractContextManager[tuple[str, int]]:
    """A job that answers with the bytes it gets, and its port."""
    return job_with_port(daemons, ECHO, node=node)


def connected(local: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", local), timeout=60.0)


def echoed(line: socket.socket, data: bytes) -> bytes:
    """Its answer to these bytes."""
    sender = threading.Thread(target=line.sendall, args=(data,))
    sender.start()
    back = bytearray()
    while len(back) < len(data) and (piece := line.recv(1 << 20)):
        back += piece
    sender.join(60.0)
    return bytes(back)
