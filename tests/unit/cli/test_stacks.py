"""The script of `dlq stacks`: it finds the Python processes of its rank, or says why not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlq_cli.commands.inside.stacks import SCRIPT

RANK = {"DLQ_JOB_ID": "4711001", "DLQ_NODE_RANK": "2"}


@contextmanager
def process(interpreter: str = sys.executable, **env: str) -> Iterator[int]:
    """A Python process with this environment."""
    command = [interpreter, "-c", "print(flush=True); input()"]
    started = subprocess.Popen(
        command, env=os.environ | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.communicate(b"\n")


def run(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The script with the programs of `path`, and the usual ones."""
    words = {"PATH": f"{path}:/usr/bin:/bin"} | RANK | env
    command = ["/bin/sh", "-c", SCRIPT, "dlq-stacks"]
    return subprocess.run(command, env=words, capture_output=True, text=True, check=False)


def fake_py_spy(path: Path, body: str = 'echo "looked at $3"') -> Path:
    (path / "py-spy").write_text(f"#!/bin/sh\n{body}\n")
    (path / "py-spy").chmod(0o755)
    return path


def test_without_py_spy_it_says_what_to_install(tmp_path: Path) -> None:
    with process(**RANK):
        ended = run(tmp_path)
    assert ended.returncode == 127
    assert "pip install py-spy" in ended.stderr


def test_it_looks_at_the_processes_of_this_rank_alone(tmp_path: Path) -> None:
    fake_py_spy(tmp_path)
    other = RANK | {"DLQ_NODE_RANK": "3"}
    with process(**RANK) as mine, process(**other) as theirs:
        ended = run(tmp_path)
    assert ended.returncode == 0
    assert ended.stdout == f"looked at {mine}\n"
    assert str(theirs) not in ended.stdout


def test_py_spy_beside_the_interpreter_will_do_and_ranks_of_a_launcher_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "env").mkdir()
    interpreter = fake_py_spy(tmp_path / "env") / "python"
    interpreter.symlink_to(sys.executable)
    with process(str(interpreter), **RANK, RANK="5") as mine:
        ended = run(tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"RANK 5:\nlooked at {mine}\n")


def test_where_it_may_not_look_it_says_which_right_is_missing(tmp_path: Path) -> None:
    fake_py_spy(tmp_path, "exit 1")
    with process(**RANK):
        ended = run(tmp_path)
    assert ended.returncode == 1
    assert "ptrace_scope" in ended.stderr


def test_a_rank_without_python_is_told(tmp_path: Path) -> None:
    ended = run(fake_py_spy(tmp_path), DLQ_JOB_ID="4711002")
    assert ended.returncode == 1
    assert "no Python process of this rank" in ended.stderr
