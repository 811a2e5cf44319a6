"""All-reduce by gloo: bytes, buckets and bounds of the largest tensor, from any part of the
traffic.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_profiler.all_reduce import BUCKET_CAP, FIRST_BUCKET_CAP, largest_tensor
from dlq_profiler.job import job_of
from dlq_profiler.process import profiles_of
from dlq_profiler.records.layout import SOCKET_SENDS, Unseen
from dlq_profiler.records.recording import RecordFile
from dlq_profiler.records.requests import requests_of
from dlq_profiler.results import (
    Interval,
    JobProfile,
    Method,
    Pattern,
    Tensors,
    TrafficConfidence,
    TrafficReason,
)
from dlq_profiler.transports import gloo, recurrence
from support.model_shapes import MODELS, buckets, tensors
from support.traffic import ring_job, ring_rank


def layouts(sizes: list[int], iterations: int) -> list[list[int]]:
    """The first iteration has buckets in another order than all that follow."""
    return [list(buckets(sizes[::-1])), *[list(buckets(sizes))] * (iterations - 1)]


def job(recordings: Sequence[RecordFile]) -> JobProfile:
    return job_of(profiles_of(recordings))


GOOGLENET = tensors("googlenet")
GOOGLENET_RANKS = {ranks: ring_job(layouts(GOOGLENET, 9), ranks=ranks) for ranks in (2, 4)}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_eight_iterations_tell_bytes_buckets_and_bounds(model: str, ranks: int) -> None:
    sizes = tensors(model)
    found = job(ring_job(layouts(sizes, 8), ranks=ranks))
    assert (found.pattern, found.processes, found.world_size) == (Pattern.ALL_REDUCE, ranks, ranks)
    assert found.traffic == (Method.ADDRESSES, TrafficConfidence.CHECKED, None)
    assert found.sizes == (Method.ADDRESSES, TrafficConfidence.ASSUMED, None)
    assert found.iterations == 7  # the first has another layout
    assert found.buckets == tuple(buckets(sizes))
    assert found.model_bytes == sum(sizes)
    assert found.bytes_per_iteration == pytest.approx(
        sum(sizes) * 2 * (ranks - 1) / ranks, rel=1e-3
    )
    assert found.largest_tensor_bytes is not None
    assert found.largest_tensor_bytes.lower < max(sizes) <= found.largest_tensor_bytes.upper
    assert found.skew is not None
    assert found.skew.upper == max(found.buckets) / sum(sizes)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("iterations", "known"), [(1, False), (2, False), (3, False), (4, True)])
def test_a_warm_up_and_three_iterations_are_enough_and_fewer_are_told(
    iterations: int, known: bool, ranks: int
) -> None:
    found = job(ring_job(layouts(GOOGLENET, iterations), ranks=ranks))
    assert found.traffic.known == found.sizes.known == known
    if known:
        assert found.model_bytes == sum(GOOGLENET)
    else:
        assert found.traffic.reason in (TrafficReason.TOO_FEW_ITERATIONS, TrafficReason.SELF_CHECK)
        assert (found.period_s, found.bytes_per_iteration, found.skew) == (None, None, None)


@settings(max_examples=60)
@given(ranks=st.sampled_from([2, 4]), begin=st.floats(0, 1), length=st.floats(0, 1))
def test_whatever_part_is_recorded_the_figures_are_right_or_unknown(
    ranks: int, begin: float, length: float
) -> None:
    recordings = GOOGLENET_RANKS[ranks]
    number = len(recordings[0].records)
    first = int(begin * number)
    last = first + int(length * (number - first))
    found = job([replace(each, records=each.records[first:last]) for each in recordings])
    if found.traffic.known:
        expected = sum(GOOGLENET) * 2 * (ranks - 1) / ranks
        assert found.bytes_per_iteration == pytest.approx(expected, rel=0.02)
    if found.sizes.known:
        assert found.model_bytes == pytest.approx(sum(GOOGLENET), rel=0.02)
    if (last - first) / number > 0.6 and first > number / 9:
        assert found.traffic.known


def test_the_two_ways_to_the_buckets_do_not_know_of_each_other() -> None:
    sizes = tensors("resnet50")
    sent = requests_of(ring_rank(layouts(sizes, 6), ranks=4).records(), SOCKET_SENDS)
    decoded = gloo.decode(sent)
    assert decoded is not None
    assert (decoded.seen, decoded.buckets.tolist()) == (5, list(buckets(sizes)))
    blind = sent.copy()
    blind["slot"] = 0
    found = recurrence.recurring(blind)
    assert found is not None
    assert (found.seen, found.header) == (5, gloo.PREAMBLE)
    assert sorted(found.buffers.tolist()) == sorted(buckets(sizes))


def test_buffers_that_move_leave_the_protocols_own_words() -> None:
    recordings = ring_job(layouts(GOOGLENET, 8), ranks=2)
    for recording in recordings:
        number = recording.records["aux"] >> 24 & 0xFFFF_FFFF  # of the collective
        recording.records["address"] += number << 41
    found = job(recordings)
    assert found.traffic.method is Method.SLOTS
    assert (found.buckets, found.model_bytes) == (tuple(buckets(GOOGLENET)), sum(GOOGLENET))


def test_the_period_leaves_out_pauses_and_says_how_steady_it_is() -> None:
    tape = ring_rank(layouts(GOOGLENET, 12), ranks=2, compute_s=0.3)
    recording = tape.recording(identity={"RANK": "0", "WORLD_SIZE": "2"})
    steady = profiles_of([recording])[0]
    records = recording.records.copy()
    half = int(records["ts_ns"][len(records) // 2])
    records["ts_ns"][records["ts_ns"] > half] += 60 * 10**9  # an evaluation
    paused = profiles_of([replace(recording, records=records)])[0]
    assert steady.period_s == pytest.approx(0.3125, rel=0.05)
    assert paused.period_s == pytest.approx(steady.period_s, rel=0.05)
    assert 0 <= steady.jitter < 0.2


def test_phases_begin_with_the_first_request_and_hold_all_bytes() -> None:
    found = job(GOOGLENET_RANKS[2])
    assert found.phases[0] > 0
    assert found.phases[8:] == (0.0,) * 24  # nine tenths of an iteration are computing
    assert sum(found.phases) == pytest.approx(sum(GOOGLENET), rel=0.01)
    assert found.active_fraction is not None
    assert 0 < found.active_fraction < 0.2


def test_a_rank_that_sends_less_than_the_others_breaks_the_self_check() -> None:
    recordings = ring_job(layouts(GOOGLENET, 8), ranks=4)
    found = job_of(profiles_of(recordings), world_size=2)
    assert (found.traffic.reason, found.sizes.reason) == (
        TrafficReason.SELF_CHECK,
        TrafficReason.SELF_CHECK,
    )
    assert found.self_check_error == pytest.approx(0.5, abs=0.01)
    assert (found.bytes_per_iteration, found.model_bytes) == (None, None)


def test_ranks_of_one_host_alone_tell_what_all_tell() -> None:
    whole = ring_job(layouts(GOOGLENET, 8), ranks=4)
    assert job(whole[:2]) == replace(
        job(whole), processes=2, records=sum(len(each.records) for each in whole[:2]),
        jitter=job(whole[:2]).jitter, period_s=job(whole[:2]).period_s,
        bytes_per_iteration=job(whole[:2]).bytes_per_iteration, phases=job(whole[:2]).phases,
        active_fraction=job(whole[:2]).active_fraction, self_check_error=job(whole[:2]).self_check_error,  # noqa: E501
    )  # fmt: skip


def test_what_was_overwritten_is_counted_and_costs_only_the_oldest_iterations() -> None:
    recordings = []
    for each in ring_job(layouts(GOOGLENET, 12), ranks=2):
        since = int(each.records["ts_ns"][len(each.records) // 3])
        late = each.records[each.records["ts_ns"] >= since]
        recordings.append(
            replace(each, records=late, lost=len(each.records) - len(late), whole_from_ns=since)
        )
    found = job(recordings)
    assert found.lost > 0
    assert found.model_bytes == sum(GOOGLENET)


@pytest.mark.parametrize(
    ("unseen", "reason"),
    [(Unseen.IO_URING, TrafficReason.BYPASS), (Unseen.GRAPH, TrafficReason.GRAPH)],
)
def test_what_went_past_us_is_the_reason_why_nothing_was_seen(
    unseen: Unseen, reason: TrafficReason
) -> None:
    empty = ring_rank([[4096]], ranks=2, noise=False).recording(unseen=unseen)
    found = job([empty])
    assert (found.traffic.reason, found.sizes.reason) == (reason, reason)
    assert found.unseen == (str(unseen.name).lower(),)


def test_what_the_framework_told_goes_before_the_bounds() -> None:
    told = Tensors(tuple(GOOGLENET), BUCKET_CAP, FIRST_BUCKET_CAP)
    recordings = GOOGLENET_RANKS[2]
    found = job_of(profiles_of(recordings, {recordings[0].pid: [told]}))
    assert found.sizes == (Method.EXACT, TrafficConfidence.EXACT, None)
    assert found.skew == Interval(*[max(GOOGLENET) / sum(GOOGLENET)] * 2)
    assert found.tensors == tuple(sorted(GOOGLENET, reverse=True))
    assert found.traffic.method is Method.ADDRESSES
    silent = job_of(profiles_of([replace(recordings[0], records=recordings[0].records[:0])],
                                {recordings[0].pid: [told]}))  # fmt: skip
    assert (silent.traffic.reason, silent.sizes.confidence) == (
        TrafficReason.NO_TRAFFIC,
        TrafficConfidence.EXACT,
    )


@given(st.lists(st.integers(4, 200_000_000), min_size=1, max_size=60), st.integers(1, 60 << 20))
def test_the_largest_tensor_lies_in_the_interval(sizes: list[int], cap: int) -> None:
    """For every model under PyTorch's caps, and under smaller ones that a script sets."""
    cap = min(cap, BUCKET_CAP)
    found = list(buckets(sizes, first_cap=min(cap, FIRST_BUCKET_CAP), cap=cap))
    for ordered in (True, False):
        interval = largest_tensor(found if ordered else sorted(found), ordered=ordered)
        assert interval.lower <= max(sizes) <= interval.upper


def test_nothing_recorded_is_told() -> None:
    found = job_of(())
    assert found.traffic.reason is TrafficReason.NOTHING_RECORDED
    assert found.processes == 0
