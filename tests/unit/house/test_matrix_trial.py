"""Which interpreters `make matrix` takes, and what it reads from their runs."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from support import matrix_trial
from support.matrix_trial import Interpreter, choose, counts_of, find, main, table


@pytest.fixture
def pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of interpreters that say which version they are; all that is on PATH."""
    for name, version in (
        ("python3.12", "3.12.9"),
        ("python3.13", "3.13.1"),
        ("python3", "3.12.9"),
    ):
        write(tmp_path / name, f"echo {version} {tmp_path / name}")
    write(tmp_path / "python3.10", f"echo 3.10.13 {tmp_path / 'python3.10'}")
    write(tmp_path / "python3.14", "echo 'no such version is installed' >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_the_one_that_runs_this_is_found() -> None:
    found = find(sys.executable)
    assert found == Interpreter(platform.python_version(), sys.executable)


def test_each_version_is_taken_once_and_what_does_not_run_is_missing(pythons: Path) -> None:
    chosen, missing = choose(("python3", "python3.12", "python3.13", "python3.14", "python3.15"))
    assert [it.version for it in chosen] == ["3.12.9", "3.13.1"]
    assert chosen[0].path == str(pythons / "python3")
    assert missing == ["python3.14", "python3.15"]


@pytest.mark.parametrize("name", ["python3.14", "python3.10", "/nonexistent/python3"])
@pytest.mark.usefixtures("pythons")
def test_one_that_was_asked_for_and_cannot_be_used_is_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix_trial, "run", lambda _: pytest.fail("nothing is begun"))
    assert main(["python3.12", name]) != 0
    assert name in capsys.readouterr().err


@pytest.mark.usefixtures("pythons")
def test_without_names_every_one_that_is_there_is_run_and_one_failure_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix_trial, "USUAL", ("python3.11", "python3.12", "python3.13"))
    write(tmp_path / "mkdir", 'exec /bin/mkdir "$@"')
    write(tmp_path / "make", 'echo "$*" | /bin/grep -q 3.12 && echo "2 passed in 1s" || exit 2')
    monkeypatch.chdir(tmp_path)
    assert main([]) == 1
    said = capsys.readouterr()
    assert "python3.11" in said.err
    assert [line.split()[0] for line in said.out.splitlines()[-2:]] == ["3.12.9", "3.13.1"]
    assert (tmp_path / "build/matrix/3.12.9.log").read_text() == f"2 passed in 1s{os.linesep}"


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("9403 passed, 65 skipped in 72.10s (0:01:12)", (9403, 0, 0, 65)),
        ("1 failed, 2 passed, 1 error in 0.10s", (2, 1, 1, 0)),
        ("= 135 failed, 9403 passed, 65 skipped, 4 errors in 9s =", (9403, 135, 4, 65)),
        ("make: *** [Makefile:52: setup] Error 1", (0, 0, 0, 0)),
    ],
)
def test_counts_are_read_from_the_last_line(line: str, counts: tuple[int, ...]) -> None:
    read = counts_of(f"....\n3 files in no time\n{line}\nmake: *** Error\n")
    assert tuple(read.values()) == counts


def test_the_table_has_a_row_for_each() -> None:
    counts = counts_of("7 passed, 2 skipped in 1s")
    rows = table([matrix_trial.Result(Interpreter("3.12.9", "p"), 0, counts, 1.25)]).splitlines()
    assert rows[1].split() == ["3.12.9", "7", "0", "0", "2", "1.2"]
