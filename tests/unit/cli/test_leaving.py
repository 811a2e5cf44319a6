"""The end of a `dlq` process: its output is out, and no lock of a stopped thread holds it up."""

import os
import subprocess
import sys

import pytest

from dlq_cli import exit_codes

# What gRPC's stream does: its end takes a lock, which a thread holds that the interpreter stops.
HELD_UP = """
import sys, threading
from dlq_cli.leaving import leave

class Stream:
    def __init__(self):
        self.lock = threading.Condition()
    def __del__(self):
        with self.lock:
            pass

def hold(lock, held):
    with lock:
        held.set()
        threading.Event().wait()

stream, held = Stream(), threading.Event()
threading.Thread(target=hold, args=(stream.lock, held), daemon=True).start()
held.wait()
print("last words")
leave(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 9, exit_codes.INTERRUPTED])
def test_a_lock_of_a_stopped_thread_does_not_hold_up_the_end(code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD_UP, str(code)],
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, b"last words\n")


def test_output_that_cannot_be_written_is_the_interpreters_own_exit_code() -> None:
    program = "from dlq_cli.leaving import leave; print('lost'); leave(0)"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            timeout=60,
            check=False,
        )
    assert done.returncode == 120
    assert b"No space left on device" in done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_a_stream_that_the_caller_has_closed_does_not_change_the_exit_code(closed: str) -> None:
    program = "from dlq_cli.leaving import leave; print('said'); leave(4)"
    command = f'"$0" -c "$1" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, program],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (4, b"")
    assert done.stdout == (b"" if "1>&-" in closed else b"said\n")


def test_both_streams_may_be_full() -> None:
    program = "from dlq_cli.leaving import leave; print('lost'); leave(0)"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=full,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            timeout=60,
            check=False,
        )
    assert done.returncode == 120


CLOSED = """
import os, sys
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from dlq_cli.leaving import fill_closed_streams, leave
fill_closed_streams()
print("nowhere")
places = [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]
leave(0 if places == ["/dev/null"] * 3 and not sys.stdin.isatty() else 1)
"""


def test_a_stream_that_the_caller_has_closed_leads_nowhere() -> None:
    assert subprocess.run([sys.executable, "-c", CLOSED], timeout=60, check=False).returncode == 0
