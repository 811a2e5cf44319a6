"""The place of a job that has just been submitted, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1.job_service_pb2 import SubmitJobResponse
from dlq_cli.commands.jobs.submitted import _tell_place


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (None, []),
        (0, ["it is first in line"]),
        (1, ["1 job is ahead of it"]),
        (2, ["2 jobs are ahead of it"]),
    ],
)
def test_the_jobs_ahead_are_told_in_words(ahead: int | None, told: list[str]) -> None:
    said: list[str] = []
    app: Any = SimpleNamespace(say=said.append)
    _tell_place(app, SubmitJobResponse(jobs_ahead_count=ahead))
    assert said == told
