"""A node without a program named python: what to do is said where the failure is shown."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.lists.story import failure_text

REMEDY = "write python3"
SAID = (
    "/var/lib/dlq/job: line 3: python: command not found",
    "/bin/sh: 1: python: not found",
    "/usr/bin/env: 'python': No such file or directory",
    "/usr/bin/env: \u2018python\u2019: No such file or directory",
    "dlq: cannot run the job: exec: No such file or directory: 'python'",
)


def failed(said: str, exit_code: int) -> str:
    rank = job_pb2.Rank(node_rank=0, node_id="gpu01", exit_code=exit_code, last_lines=[said])
    return failure_text([job_pb2.Attempt(first_failed_rank=0, ranks=[rank])])


@pytest.mark.parametrize("said", SAID)
def test_a_node_that_has_no_python_is_told_from_its_last_lines(said: str) -> None:
    shown = failed(said, 127).splitlines()
    assert REMEDY in shown[-1]
    assert "gpu01" in shown[-1]


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        (SAID[0], 1),  # the script went on without it
        ("train.sh: line 3: pythonic: command not found", 127),
        ("bash: nvcc: command not found", 127),
        ("env: 'python3': No such file or directory", 127),
    ],
)
def test_other_failures_get_no_such_advice(said: str, exit_code: int) -> None:
    assert REMEDY not in failed(said, exit_code)
