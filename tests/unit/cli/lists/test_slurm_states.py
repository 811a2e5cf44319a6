"""The states of jobs in Slurm's words: all programs say the same of one job."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.lists.columns import COLUMNS
from dlq_cli.lists.slurm_states import account_state, code, queue_state
from dlq_cli.lists.states import parse_states
from support.wire_jobs import a_job

SILENT = job_pb2.ATTEMPT_STATE_UNKNOWN


def test_a_silent_node_still_holds_its_job() -> None:
    """NODE_FAIL is an end: a program that reads it would submit the job again beside itself."""
    job = a_job(1, "running", attempt_state=SILENT)
    assert (code(job), queue_state(job), account_state(job)) == ("R", "RUNNING", "RUNNING")


def test_a_cancelled_job_of_a_silent_node_is_completing() -> None:
    job = a_job(1, "running", attempt_state=SILENT, stop_cause="cancel")
    assert (code(job), queue_state(job), account_state(job)) == ("CG", "COMPLETING", "RUNNING")


@pytest.mark.parametrize(
    ("why", "short", "long"),
    [
        ("oom_host", "OOM", "OUT_OF_MEMORY"),
        ("oom_gpu", "OOM", "OUT_OF_MEMORY"),
        ("node_lost", "NF", "NODE_FAIL"),
        ("user_error", "F", "FAILED"),
    ],
)
def test_a_failure_names_its_kind_everywhere(why: str, short: str, long: str) -> None:
    job = a_job(1, "failed", end_reason=why)
    assert (code(job), queue_state(job), account_state(job)) == (short, long, long)
    assert COLUMNS["code"].text(job, None) == short  # type: ignore[arg-type]


def test_a_list_of_running_jobs_has_those_of_silent_nodes() -> None:
    assert "unknown" in parse_states("R")


def test_a_list_of_failed_jobs_by_their_kinds() -> None:
    assert parse_states("OOM,NF") == ["failed"]
