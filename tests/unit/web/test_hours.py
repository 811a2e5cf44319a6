"""The next hours as lanes and bars: ends that are known, slots of promises, and one bar a pixel."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dlq.v1 import job_pb2
from dlq.v1.reservation_service_pb2 import Reservation
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_web.pages.foresee.hours import (
    NEVER_S,
    PROMISED,
    RESERVED,
    RUNS,
    STARTS,
    FutureBar,
    FutureLane,
    FutureSeen,
    bars_of,
    lanes_of,
    of_team,
    packed,
)
from dlq_web.pages.foresee.thinned import FutureView, picture, seen_lanes, thinned
from support.wire_jobs import EPOCH_S, a_job

NOW_S = EPOCH_S + 3_783  # a running job of wire_jobs began 3,723 s ago
VIEW = FutureView(NOW_S - 3_600, 46_800.0, 1_000)
SPANS = st.lists(
    st.tuples(st.floats(-9e3, 9e4), st.floats(0, 5e4), st.sampled_from((RUNS, STARTS))),
    max_size=300,
)


def running(job_id: int = 1, **fields: Any) -> job_pb2.Job:
    return a_job(job_id, "running", **fields)


def waiting(job_id: int, likely_s: float, **fields: Any) -> job_pb2.Job:
    job = a_job(job_id, "queued", **fields)
    job.start_estimate.earliest_time.CopyFrom(to_timestamp(NOW_S + likely_s / 2))
    job.start_estimate.likely_time.CopyFrom(to_timestamp(NOW_S + likely_s))
    job.start_estimate.latest_time.CopyFrom(to_timestamp(NOW_S + likely_s * 2))
    return job


def seen(*jobs: job_pb2.Job, reservations: tuple[Reservation, ...] = ()) -> FutureSeen:
    runs = [job for job in jobs if job.HasField("attempt_state")]
    waits = [job for job in jobs if not job.HasField("attempt_state")]
    return FutureSeen(NOW_S, runs, waits, reservations)


def only(job: job_pb2.Job) -> FutureBar:
    (bar,) = bars_of(job, NOW_S)
    return bar


def test_a_running_job_ends_by_its_estimate_and_at_most_by_its_limit() -> None:
    job = running()
    assert (only(job).begin_s, only(job).end_s) == (NOW_S - 3_723, NOW_S + NEVER_S)
    assert only(job).early_s == NOW_S  # until now it is sure
    job.run_estimate.run_duration.CopyFrom(to_duration(7_323))
    assert only(job).end_s == NOW_S + 3_600
    job.time_left_duration.CopyFrom(to_duration(600))
    assert (only(job).early_s, only(job).end_s) == (NOW_S + 600, NOW_S + 600)


def test_an_estimate_that_is_over_says_nothing_of_the_end() -> None:
    job = running()
    job.run_estimate.run_duration.CopyFrom(to_duration(60))
    assert only(job).end_s == NOW_S + NEVER_S


def test_a_waiting_job_has_its_likely_start_with_both_edges() -> None:
    job = waiting(2, 1_000)
    job.time_left_duration.CopyFrom(to_duration(500))
    bar = only(job)
    assert bar.kind == STARTS
    assert [bar.early_s, bar.begin_s, bar.late_s] == [NOW_S + 500, NOW_S + 1_000, NOW_S + 2_000]
    assert bar.end_s == NOW_S + 1_500
    job.start_estimate.ClearField("latest_time")
    assert only(job).late_s == NEVER_S


def test_a_job_without_a_forecast_has_no_bar() -> None:
    assert list(bars_of(a_job(3), NOW_S)) == []
    late = a_job(3)
    late.start_estimate.earliest_time.CopyFrom(to_timestamp(NOW_S + 99))
    assert list(bars_of(late, NOW_S)) == []


def test_a_promise_has_its_last_slot() -> None:
    job = waiting(2, 1_000)
    job.promise.state, job.promise.guaranteed_index = "guaranteed", 0
    job.promise.deadlines.add(reward=100.0).due_time.CopyFrom(to_timestamp(NOW_S + 9_000))
    job.promise.slack_duration.CopyFrom(to_duration(4_000))
    slot = list(bars_of(job, NOW_S))[1]
    assert (slot.kind, slot.begin_s, slot.end_s) == (PROMISED, NOW_S + 4_000, NOW_S + 9_000)
    job.promise.slack_duration.CopyFrom(to_duration(-50))
    assert list(bars_of(job, NOW_S))[1].begin_s == NOW_S
    job.promise.state = "unguaranteed"
    assert len(list(bars_of(job, NOW_S))) == 1


def test_another_users_job_has_no_name_and_leads_nowhere() -> None:
    job = running(7, redacted=True, user="bob", name="")
    bar = only(job)
    assert (bar.words, bar.job_id) == ("7 (bob), 8 GPUs", "")


def test_lanes_by_jobs_begin_with_reservations_then_the_next_to_end() -> None:
    long, short = running(1), running(2)
    short.time_left_duration.CopyFrom(to_duration(60))
    held = Reservation(reservation_id="m1", node_ids=["n1", "n2"], reason="disks")
    held.begin_time.CopyFrom(to_timestamp(NOW_S + 100))
    held.end_time.CopyFrom(to_timestamp(NOW_S + 200))
    lanes = lanes_of(
        seen(long, short, waiting(3, 900), waiting(4, 500), reservations=(held,)), "jobs"
    )
    assert [lane.name.split()[0] for lane in lanes] == ["reservation", "2", "1", "4", "3"]
    assert lanes[0].name == "reservation m1 disks: n[1-2]"
    assert lanes[0].bars[0].kind == RESERVED


def test_lanes_by_nodes_put_jobs_side_by_side() -> None:
    lanes = lanes_of(seen(running(1), running(2), waiting(3, 900)), "nodes")
    assert [lane.name for lane in lanes] == ["gpu01", "gpu01", "gpu02", "gpu02", "likely starts"]


def test_a_team_keeps_its_own_jobs_alone() -> None:
    found = of_team(seen(running(1, team="nlp"), waiting(2, 9, team="vision")), "nlp")
    assert [job.job_id for job in (*found.running, *found.waiting)] == ["1"]


@given(SPANS)
def test_rows_never_overlap_and_none_is_lost(spans: list[tuple[float, float, str]]) -> None:
    bars = [FutureBar(kind, begin, begin + length) for begin, length, kind in spans]
    rows = packed(bars)
    assert sorted(bar for row in rows for bar in row) == sorted(bars)
    for row in rows:
        assert all(one.end_s <= other.begin_s for one, other in pairwise(row))


@given(SPANS)
def test_a_lane_has_at_most_one_bar_of_a_kind_a_pixel(
    spans: list[tuple[float, float, str]],
) -> None:
    view = FutureView(0.0, 46_800.0, 200)
    bars = [FutureBar(kind, begin, begin + length) for begin, length, kind in spans]
    told = picture([FutureLane("all", thinned(bars, view))], view, 0.0)["bars"]
    assert all(count == 1 for count in Counter((bar[1], bar[2]) for bar in told).values())
    assert len(told) <= 2 * (view.pixels + 1)
    assert all(0 <= edge <= view.pixels for bar in told for edge in bar[2:6])
    inside = [bar for bar in bars if bar.end_s > 0 and bar.begin_s < view.span_s]
    assert sum(bar.merged for bar in thinned(bars, view)) == len(inside)


def test_a_huge_cluster_is_a_bounded_picture() -> None:
    jobs = [running(number) for number in range(5_000)]
    told = picture(seen_lanes(lanes_of(seen(*jobs), "jobs"), VIEW), VIEW, NOW_S)
    assert len(told["lanes"]) == len(told["bars"]) == 1_000
    assert told["left_out"] == 4_000
