"""What is printed into a pipe that never waits: rsync makes such ones for its line."""

from __future__ import annotations

import os
import threading

from dlq_cli.interactive.terminal import StreamPrinter


def test_a_full_pipe_that_never_waits_loses_no_byte() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    data = os.urandom(1 << 20)
    heard: list[bytes] = []

    def hear() -> None:
        while more := os.read(reads, 4096):
            heard.append(more)

    listener = threading.Thread(target=hear)
    listener.start()
    with os.fdopen(writes, "wb") as stream:
        printer = StreamPrinter(stream, raw=False)
        printer.write(data)
        printer.finish()
    listener.join()
    os.close(reads)
    assert b"".join(heard) == data
