"""Telling a program something and hearing it out, within a time and a size."""

from __future__ import annotations

import os
import select
import selectors
import subprocess

from dlq_common.clock import SteadyClock

_CHUNK = 64 * 1024


class TooMuch(Exception):
    """The program wrote more than it may. Reading on would fill this process's memory."""


def exchange(
    process: subprocess.Popen[bytes], told: bytes, *, timeout_s: float, most_bytes: int
) -> tuple[bytes, bytes]:
    """Its standard output and error, once it has closed both and ended. All three of its streams
    are pipes. Raises TooMuch, or subprocess.TimeoutExpired."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    now_s = SteadyClock().boottime_s
    out, errors, end_s = bytearray(), bytearray(), now_s() + timeout_s
    with selectors.DefaultSelector() as streams:
        streams.register(process.stdin, selectors.EVENT_WRITE)
        streams.register(process.stdout, selectors.EVENT_READ, out)
        streams.register(process.stderr, selectors.EVENT_READ, errors)
        while streams.get_map():
            left_s = end_s - now_s()
            if left_s <= 0.0:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _ in streams.select(left_s):
                if key.data is None:
                    told = _written(key.fd, told)
                    more = bool(told)
                else:
                    more = _read(key.fd, key.data, most_bytes)
                if not more:
                    streams.unregister(key.fd)
                    if key.data is None:
                        process.stdin.close()
    process.wait(max(0.0, end_s - now_s()))
    return bytes(out), bytes(errors)


def _written(fd: int, told: bytes) -> bytes:
    """The events still to be reported. A pipe that has room for anything takes so much without
    blocking.
    """
    try:
        return told[os.write(fd, told[: select.PIPE_BUF]) :]
    except BrokenPipeError:  # it does not want to know
        return b""


def _read(fd: int, heard: bytearray, most_bytes: int) -> bool:
    """Whether there may be more."""
    chunk = os.read(fd, _CHUNK)
    heard += chunk
    if len(heard) > most_bytes:
        raise TooMuch
    return bool(chunk)
