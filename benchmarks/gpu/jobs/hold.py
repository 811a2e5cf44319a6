"""A job that holds memory of its GPU, and does nothing else.

    python -m benchmarks.gpu.jobs.hold NOTES BYTES [--escape] [--hide] [--seconds N]

Notes: `begun` before CUDA, `context` with the free memory, `holding` when it has all of it. On
SIGTERM, or after N seconds, it looks whether its memory is whole, notes `whole`, and ends. With
`--escape` a child in a session of its own holds the memory, and the job itself ends with 0. With
`--hide` a child in a namespace of processes of its own does, where that is allowed; it ends with
this process. The note `hidden` says so.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import time
from types import FrameType

from benchmarks.gpu.jobs.cuda import Driver
from benchmarks.gpu.jobs.notes import Notes

NEW_PIDS = 0x20000000  # CLONE_NEWPID
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Hold, until told otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("notes")
    parser.add_argument("bytes", type=int)
    parser.add_argument("--escape", action="store_true")
    parser.add_argument("--hide", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    notes = Notes(options.notes)
    notes.take("begun")
    if options.escape and os.fork():
        while not notes.all("holding"):
            time.sleep(0.02)
        return
    if options.escape:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork():
            os._exit(0)
    if options.hide:
        hide(notes)
    hold(notes, options.bytes, options.seconds)


def hide(notes: Notes) -> None:
    """Go on in a child that is process 1 of a namespace of its own, or here if that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_PIDS):
        notes.take("hidden", done=False, why=os.strerror(ctypes.get_errno()))
        return
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL)
    notes.take("hidden", done=True, why="")


def hold(notes: Notes, nbytes: int, seconds: float) -> None:
    """Take memory, wait, look."""
    driver, told = Driver(), []

    def end(number: int, frame: FrameType | None) -> None:
        told.append(number)

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, end)
    driver.use()
    free, total = driver.memory()
    notes.take("context", free=free, total=total, uuids=driver.uuids())
    driver.hold(nbytes)
    notes.take("holding", bytes=nbytes)
    end_s = time.monotonic() + seconds
    while not told and time.monotonic() < end_s:
        time.sleep(0.02)
    notes.take("whole", whole=driver.is_whole())


if __name__ == "__main__":
    main()
