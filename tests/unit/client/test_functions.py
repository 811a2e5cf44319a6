"""Functions in files: written for their user alone, run once, and trusted only where that user owns
them.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlq
from dlq_api import functions
from dlq_api.functions import FunctionFiles, default_place
from dlq_train import function as remote

LARGEST = 1 << 20


def add(left: int, right: int = 1) -> int:
    return left + right


def refuse() -> None:
    raise KeyError("no such thing")


def leave() -> None:
    raise SystemExit(99)


class _Unread(Exception):
    """It cannot be rebuilt from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def refuse_unread() -> None:
    raise _Unread("a", "b")


def calls_of(root: Path, function: Callable[..., Any], *given: tuple[Any, ...]) -> FunctionFiles:
    made = FunctionFiles(root, "key", keep=False, largest_result=LARGEST)
    made.write(function, [(each, {}) for each in given])
    return made


def run(calls: FunctionFiles, number: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The job of one call."""
    monkeypatch.setenv("DLQ_ARRAY_TASK_ID", str(number))
    return remote.main([str(calls.place)])


def test_values_come_back_and_the_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(tmp_path, add, (1, 2), (5,))
    assert calls.place.stat().st_mode & 0o777 == 0o700
    for number, value in ((1, 6), (0, 3)):
        assert run(calls, number, monkeypatch) == 0
        assert (calls.place / f"result-{number}").stat().st_mode & 0o777 == 0o600
        assert calls.value(number, is_well=True) == value
        calls.taken()
    assert not calls.place.exists()


def test_an_exception_comes_back_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = calls_of(tmp_path, refuse, ())
    assert run(calls, 0, monkeypatch) == 1
    assert "no such thing" in capsys.readouterr().err
    with pytest.raises(KeyError) as raised:
        calls.value(0, is_well=False)
    cause = raised.value.__cause__
    assert isinstance(cause, dlq.RemoteTraceback)
    assert 'raise KeyError("no such thing")' in str(cause)


def test_an_exception_that_cannot_be_rebuilt_comes_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(tmp_path, refuse_unread, ())
    assert run(calls, 0, monkeypatch) == 1
    with pytest.raises(dlq.FunctionFailed, match="refuse_unread"):
        calls.value(0, is_well=False)


def test_a_result_is_computed_once_and_a_failure_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(tmp_path, add, (1,))
    assert run(calls, 0, monkeypatch) == 0
    (calls.place / remote.CALLS).unlink()  # a second run would need it
    assert run(calls, 0, monkeypatch) == 0
    (calls.place / "result-0").unlink()
    with pytest.raises(FileNotFoundError):
        remote.read_call(calls.place / remote.CALLS, 0)
    assert run(calls, 0, monkeypatch) == 1
    assert run(calls, 0, monkeypatch) == 1


def test_an_exit_of_the_function_is_the_exit_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(tmp_path, leave, ())
    with pytest.raises(SystemExit) as left:
        run(calls, 0, monkeypatch)
    assert left.value.code == 99
    assert not (calls.place / "result-0").exists()


@pytest.mark.parametrize("how", ["others may write", "of another user", "a link", "a directory"])
def test_a_result_that_others_could_have_made_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    calls = calls_of(tmp_path, add, (1,))
    assert run(calls, 0, monkeypatch) == 0
    result = calls.place / "result-0"
    match how:
        case "others may write":
            result.chmod(0o662)
        case "of another user":
            me = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        case "a link":
            result.rename(tmp_path / "elsewhere")
            result.symlink_to(tmp_path / "elsewhere")
        case _:
            result.unlink()
            result.mkdir()
    monkeypatch.setattr(pickle, "load", lambda _: pytest.fail("it was unpickled"))
    with pytest.raises(dlq.FunctionLost):
        calls.value(0, is_well=True)


def test_a_job_does_not_unpickle_calls_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(tmp_path, add, (1,))
    (calls.place / remote.CALLS).chmod(0o666)
    assert run(calls, 0, monkeypatch) == 1
    with pytest.raises(PermissionError, match="not unpickled"):
        calls.value(0, is_well=False)


def test_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "LARGEST_CALL_BYTES", 1000)
    monkeypatch.setattr(functions, "LARGEST_CALLS_BYTES", 1500)
    with pytest.raises(dlq.InvalidRequest) as refused:
        calls_of(tmp_path, add, ("x" * 2000,))
    assert refused.value.field == "arguments"
    with pytest.raises(dlq.InvalidRequest, match="in all"):
        calls_of(tmp_path, add, *[("x" * 600,)] * 3)
    assert list(tmp_path.iterdir()) == []
    calls = FunctionFiles(tmp_path, "key", keep=False, largest_result=10)
    calls.write(add, [((1,), {})])
    assert run(calls, 0, monkeypatch) == 0
    with pytest.raises(dlq.FunctionLost, match="10 at most"):
        calls.value(0, is_well=True)


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    with pytest.raises(dlq.InvalidRequest) as refused:
        calls_of(tmp_path, add, (threading.Lock(),))
    assert refused.value.field == "arguments"


def test_a_directory_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(dlq.InvalidRequest, match="others may write"):
        calls_of(tmp_path, add, (1,))
    monkeypatch.setenv("DLQ_FUNCTIONS", "/somewhere")
    assert default_place() == Path("/somewhere")
