"""Ctrl-C inside gRPC, after the begin of a call and before anybody looks after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.extent import spread
from support.fake_master import FakeMaster
from support.wire_jobs import a_job, an_attempt, an_event

pytestmark = pytest.mark.integration
DEADLINE_S = 60.0
# Function and line of gRPC at which a call has just begun: a stream, and any other.
STREAM = ("create", "_run_channel_spin_thread(state)")
OTHER = ("_blocking", "event = call.next_event()")
# `dlq`, interrupted when whatever thread comes there.
PROGRAM = """
import linecache, signal, sys, threading

function, wanted, *arguments = sys.argv[1:]

def entered(frame, event, _):
    return step if frame.f_code.co_name == function else None

def step(frame, event, _):
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if event == "line" and line.strip() == wanted:
        threading.settrace(None)
        sys.settrace(None)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    return step

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.settrace(entered)
sys.settrace(entered)
from dlq_cli.main import main

sys.argv[1:] = arguments
main()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    master = FakeMaster()
    master.jobs = {"17": a_job(17, "running", attempt_count=1)}
    master.attempts["17"] = [an_attempt(17, 1)]
    master.events = [an_event(1, "attempt_running", 17, attempt=1)]
    master.logs[("17", 1, 0)] = b"output\n"
    master.log_ended = False
    yield master.home(tmp_path / "home")
    master.stop()


@pytest.mark.parametrize(
    ("point", "words"),
    spread(
        [
            (STREAM, "status -w 17"),
            (OTHER, "status -w 17"),
            (STREAM, "logs -f 17"),
            (STREAM, "exec 17 -- cat"),
            (OTHER, "show 17"),
        ],
        2,
    ),
)
def test_dlq_ends_wherever_ctrl_c_comes(point: tuple[str, str], words: str, home: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, *point, "--home", str(home), *words.split()]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 130, done.stderr.decode()
