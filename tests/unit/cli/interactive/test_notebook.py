"""The words that start a notebook in a job, and the words that find it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1 import exec_pb2, job_service_pb2
from dlq_cli.interactive.notebook import (
    Notebook,
    finding_words,
    found_notebook,
    notebook_of,
    starting_words,
)
from dlq_common.errors import Unavailable
from support.fake_jupyter import install_jupyter


def job(tmp_path: Path, *, path: str) -> dict[str, str]:
    """The variables of a job."""
    (tmp_path / "job").mkdir(exist_ok=True)
    return {"PATH": path, "DLQ_BEAT_FILE": f"{tmp_path}/job/beat", "DLQ_JOB_ID": "17"}


@contextmanager
def started(variables: dict[str, str], *more: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(starting_words(more), env=variables, stdout=subprocess.PIPE) as program:
        try:
            yield program
        finally:
            program.kill()


def test_it_is_found_where_it_listens_and_has_the_words_behind(tmp_path: Path) -> None:
    install_jupyter(tmp_path)
    variables = job(tmp_path, path=f"{tmp_path}:{os.environ['PATH']}")
    with started(variables, "--collaborative") as program:
        said = subprocess.run(finding_words(), env=variables, capture_output=True, check=True)
        found = notebook_of(said.stdout)
        assert program.stdout is not None
        words = program.stdout.readline().decode()
    assert found.url(9999) == "http://127.0.0.1:9999/lab?token=secret"
    assert "'--ip=127.0.0.1'" in words
    assert words.rstrip().endswith("'--collaborative']")
    assert (tmp_path / "job" / "notebook").stat().st_mode & 0o777 == 0o700


def test_without_jupyter_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        starting_words(()), env=job(tmp_path, path="/nowhere"), capture_output=True, check=False
    )
    assert done.returncode == 127
    assert b"jupyter is not installed" in done.stderr


@pytest.mark.parametrize(
    ("facts", "url"),
    [
        ({"port": 1, "token": "a b", "base_url": "/"}, "http://127.0.0.1:2/lab?token=a+b"),
        ({"port": 1, "token": "", "base_url": "/user/ada/"}, "http://127.0.0.1:2/user/ada/lab"),
        ({"port": 1}, "http://127.0.0.1:2/lab"),
        ({"port": 1, "base_url": "/\x1b[2Ja\n\ud800"}, "http://127.0.0.1:2/%1B%5B2Ja%0A%3F/lab"),
        ({"port": 1, "token": "\x1b\ud800"}, "http://127.0.0.1:2/lab?token=%1B%3F"),
    ],
)
def test_its_address(facts: dict[str, object], url: str) -> None:
    found = notebook_of(json.dumps(facts).encode())
    assert isinstance(found, Notebook)
    assert found.url(2) == url


@pytest.mark.parametrize(
    "note",
    [b"", b"{", b"[]", b'{"token": "x"}', b'{"port": "none"}', b'{"port": 1e400}', b'{"port": -1}'],
)
def test_a_note_that_is_half_written(note: bytes) -> None:
    with pytest.raises(Unavailable):
        notebook_of(note)


def test_a_look_that_the_node_refuses_is_told_as_that() -> None:
    ended = exec_pb2.ExecEnded(error="the rank has ended")
    answer = job_service_pb2.ExecJobResponse(output=exec_pb2.ExecOutput(ended=ended))

    class Answer(list[job_service_pb2.ExecJobResponse]):
        def cancel(self) -> None:
            pass

    def kind(*_: Any, **__: Any) -> Any:
        return lambda _inputs: Answer([answer])

    kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
    connection: Any = SimpleNamespace(
        channel=SimpleNamespace(**dict.fromkeys(kinds, kind)),
        patience=lambda _: SimpleNamespace(restored=lambda: None),
    )
    with pytest.raises(Unavailable, match="cannot be looked for: the rank has ended"):
        found_notebook(connection, "17")
