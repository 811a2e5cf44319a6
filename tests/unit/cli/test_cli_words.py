"""Small words that misled: what the order to a job that has ended did, names said twice, tokens
without their configuration.
"""

from __future__ import annotations

import pytest

from dlq.v1 import profile_pb2
from dlq_cli.commands.jobs.cancel import ordered
from dlq_cli.commands.jobs.each import _named
from dlq_cli.output.render import OutputLook
from dlq_cli.text.traffic import believed_lines, traffic_pairs
from dlq_common.text.sizes import parse_range
from dlq_master.rpc.jobs.visible import _shown
from support.wire_jobs import a_job


def test_who_cancels_a_job_that_has_ended_is_told_that_it_had() -> None:
    assert ordered(a_job(1, "completed")) == "has ended already (completed)"
    assert ordered(a_job(2, "failed")) == "has ended already (failed)"
    assert ordered(a_job(3, "cancelled")) == "cancelled"


def test_a_job_is_named_once() -> None:
    assert _named("3", "job 3 has ended (completed)") == "job 3 has ended (completed)"
    assert _named("3", "job 30 has ended") == "job 3: job 30 has ended"
    assert _named("3", "not yours") == "job 3: not yours"


def test_numbers_of_jobs_stand_without_quotes() -> None:
    assert (_shown("7"), _shown("x y")) == ("7", "'x y'")


def test_a_range_below_one_gpu() -> None:
    with pytest.raises(ValueError, match="a job needs at least one GPU"):
        parse_range("0:4")


def test_a_recording_in_which_nothing_was_seen_is_not_shown() -> None:
    look = OutputLook(tty=False, color=False, now_s=0.0)
    start = profile_pb2.RecordedStart(attempt=1, cause="first")
    start.traffic.reason = "nothing-recorded"
    traffic = profile_pb2.JobTraffic(starts=[start])
    assert [*believed_lines(traffic, look), *traffic_pairs(traffic, look)] == []
    start.traffic.reason = "not-periodic"
    traffic = profile_pb2.JobTraffic(starts=[start])
    (line,) = believed_lines(traffic, look)
    assert "no part of the traffic repeats itself" in line
