"""What is believed of how jobs communicate, from which start, and which starts teach anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.slowdown import OVERLAP, rho_of, rho_of_spread, slowdown
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Cause, Found, Recording, Told
from dlq_master.policy.sensitivity import traffic_estimates
from dlq_master.policy.sensitivity.traffic_estimates import (
    FRESH_S,
    LATE_S,
    MOST_CUT_SHORT,
    MOST_TRIES,
    RecordedStart,
    TrafficEstimates,
)
from support.builders import a_job, a_request

LINK = 1e9  # bytes per second
KNOWN, UNKNOWN = Told("address-recurrence", "checked"), Told("none", "unknown", "no-traffic")


def found(period_s: float = 0.5, sent: float = 1e8, *, sizes: Told = KNOWN) -> Found:
    return Found(KNOWN, sizes, 8, period_s, sent, sent, 0.6, 0.7)


NOTHING = Found(UNKNOWN, UNKNOWN)
EARLY = NOTHING._replace(recorded_s=3.0)


def a_recording(
    job: int = 1, at_s: float = 100.0, what: Found | None = None, **changes: object
) -> Recording:
    recording = Recording(
        key=AttemptKey(JobId(job), 1),
        epoch=1,
        family="ada/vgg",
        gpu_type="H100",
        gpus=2,
        node_ids=(NodeId("n1"),),
        spread=False,
        cause=Cause.FIRST,
        order_time_s=at_s,
        window_s=60.0,
        found=what,
        found_time_s=None if what is None else at_s + 60.0,
    )
    return recording._replace(**changes)  # type: ignore[arg-type] # a builder takes any field


def of_family(job: int = 9, gpus: int = 2, gpu_type: str | None = None) -> Job:
    return a_job(job, request=a_request(gpus, gpu_type=gpu_type), family="ada/vgg")


def knowing(*recordings: Recording, link: float | None = LINK) -> TrafficEstimates:
    made = TrafficEstimates(link)
    for recording in recordings:
        made.put(recording)
    return made


def profile_of(made: TrafficEstimates, job: Job) -> TrafficProfile:
    belief = made.of(job)
    assert belief is not None
    return belief.profile


def test_a_skew_between_bounds_counts_as_the_higher_and_rho_follows_from_the_link() -> None:
    made = knowing(a_recording(what=found()))
    assert profile_of(made, of_family()) == TrafficProfile(0.7, 0.2, 1e8)
    assert profile_of(knowing(a_recording(what=found()), link=None), of_family()).rho is None
    unsized = knowing(a_recording(what=found(sizes=UNKNOWN)))
    assert profile_of(unsized, of_family()) == TrafficProfile(None, 0.2, None)


def test_a_job_without_a_family_is_one_by_itself() -> None:
    alone = a_job(3, gpus=2)
    made = knowing(a_recording(3, what=found(), family="#3"))
    assert made.of(alone) is not None
    assert made.of(a_job(4, gpus=2)) is None


def test_a_spread_start_did_not_compute_while_it_waited_for_the_link() -> None:
    """(1 + rho^g)^(1/g) of the computing is what it took."""
    compute_s, sent = 0.5, 4e8
    rho = rho_of(sent, compute_s, LINK)
    took_s = compute_s * slowdown(rho, OVERLAP)
    assert rho_of_spread(sent, took_s, LINK) == pytest.approx(rho)
    assert rho_of_spread(sent, 0.3, LINK) > 10.0, (
        "a faster link than was said: it sends all the time"
    )
    made = knowing(a_recording(what=found(took_s, sent), spread=True))
    assert profile_of(made, of_family()).rho == pytest.approx(rho)


def test_of_several_starts_the_jobs_own_counts_then_one_of_its_width_on_few_nodes() -> None:
    own = a_recording(9, 50.0, found(0.9))
    newest = a_recording(1, 900.0, found(0.8), gpus=4)
    width = a_recording(2, 100.0, found(0.7))
    spread = a_recording(3, 500.0, found(0.6), spread=True)
    silent = a_recording(4, 990.0, NOTHING)

    def basis(*recordings: Recording) -> int:
        belief = knowing(*recordings).of(of_family())
        assert belief is not None
        return belief.basis.key.job_id

    assert basis(own, newest, width, spread, silent) == 9
    assert basis(newest, width, spread, silent) == 2
    assert basis(newest, spread) == 3
    assert basis(newest) == 1
    assert knowing(silent).of(of_family()) is None


def test_another_gpu_type_is_another_matter_if_the_job_names_one() -> None:
    made = knowing(a_recording(what=found()))
    assert made.of(of_family(gpu_type="H100")) is not None
    assert made.of(of_family(gpu_type="A100")) is None


def test_sizes_alone_are_better_than_nothing_and_worse_than_times() -> None:
    sizes = Found(UNKNOWN, Told("framework", "exact"), model_bytes=5e8, skew_low=0.3, skew_high=0.3)
    made = knowing(a_recording(1, 500.0, sizes))
    assert profile_of(made, of_family()) == TrafficProfile(0.3, None, 5e8)
    made.put(a_recording(2, 100.0, found()))
    assert profile_of(made, of_family()).rho == 0.2


def test_a_pair_of_starts_measures_the_slowdown_once_and_for_that_width_only() -> None:
    made = TrafficEstimates(LINK)
    assert made.put(a_recording(1, what=found(0.5))) is None
    open_ = a_recording(2, 200.0, spread=True)
    assert made.put(open_) is None
    run = made.put(open_._replace(found=found(1.25)))
    assert run is not None
    assert (run.spread, run.slowdown, run.profile) == (True, 2.5, TrafficProfile(0.7, 0.2, 1e8))
    assert made.put(open_._replace(found=found(1.25))) is None, "it has been told"
    assert profile_of(made, of_family()).slowdown == 2.5
    assert profile_of(made, of_family(gpus=4)).slowdown is None
    assert made.put(a_recording(3, 300.0, found(5.0), spread=True, gpus=4)) is None


def test_what_is_old_and_what_told_nothing_is_recorded_again_but_not_for_ever() -> None:
    start = RecordedStart(of_family(), "H100", 2, spread=False, at_s=1_000.0)

    def why(*recordings: Recording, of: RecordedStart = start, asked: bool = False) -> Cause | None:
        return knowing(*recordings).why_record(of, asked=asked)

    known = a_recording(1, 900.0, found())
    assert why() is Cause.FIRST
    assert why(known) is None
    assert why(known, of=start._replace(spread=True)) is Cause.PLACEMENT
    assert why(known, of=start._replace(gpus=4)) is Cause.FIRST
    assert why(known, of=start._replace(gpu_type="A100")) is Cause.FIRST
    assert why(known, of=start._replace(at_s=901.0 + FRESH_S)) is Cause.STALE
    pending = a_recording(1, 990.0)
    assert why(pending) is None
    assert why(pending, of=start._replace(at_s=990.0 + 60.0 + LATE_S)) is Cause.FIRST
    silent = [a_recording(place, 900.0, NOTHING) for place in range(MOST_TRIES)]
    assert why(*silent[:-1]) is Cause.FIRST
    assert why(*silent) is None
    cut = [a_recording(place, 900.0, EARLY) for place in range(MOST_TRIES + MOST_CUT_SHORT)]
    assert why(*cut[:-1]) is Cause.FIRST
    assert why(*cut) is None
    whole = NOTHING._replace(recorded_s=59.5)
    assert why(*(a_recording(place, 900.0, whole) for place in range(MOST_TRIES))) is None
    assert why(a_recording(9, 990.0)) is Cause.FIRST, "an earlier attempt of the job itself"


def test_who_asks_is_recorded_until_the_jobs_own_start_has_told() -> None:
    start = RecordedStart(of_family(), "H100", 2, spread=False, at_s=1_000.0)
    others = a_recording(1, 900.0, found())
    own = a_recording(9, 950.0, found())
    silent = own._replace(found=NOTHING)
    assert knowing(others).why_record(start, asked=True) is Cause.ASKED
    assert knowing(others, silent).why_record(start, asked=True) is Cause.ASKED
    assert knowing(others, own).why_record(start, asked=True) is None


def test_what_not_all_nodes_have_told_of_is_overdue_until_it_is_closed() -> None:
    made = knowing(a_recording(1, 100.0), a_recording(2, 200.0), a_recording(3, 50.0, found()))
    assert made.overdue(159.0 + LATE_S) == ()
    assert [one.key.job_id for one in made.overdue(160.0 + LATE_S)] == [1]
    made.put(a_recording(1, 100.0, NOTHING))
    assert [one.key.job_id for one in made.overdue(900.0 + LATE_S)] == [2]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_estimates, "KEPT", 3)
    monkeypatch.setattr(traffic_estimates, "FAMILIES_KEPT", 2)
    made = knowing(*(a_recording(job, float(job), found() if job else None) for job in range(6)))
    assert sorted(one.key.job_id for one in made) == [3, 4, 5]
    assert made.overdue(1e9) == ()
    assert made.get(AttemptKey(JobId(1), 1)) is None
    for family in ("b", "c"):
        made.put(a_recording(ord(family), 50.0, found(), family=family))
    assert {one.family for one in made} == {"b", "c"}


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from([None, EARLY, NOTHING, found(0.5), found(2.0)]),
            st.floats(0.0, 5_000.0),
        ),
        max_size=25,
    )
)
def test_no_start_is_recorded_twice_without_need(
    steps: list[tuple[bool, Found | None, float]],
) -> None:
    """Whatever starts tell: at most one that told of each kind of placement, and a few that did
    not.
    """
    made, now_s = TrafficEstimates(LINK), 0.0
    ordered: dict[bool, list[Found | None]] = {False: [], True: []}
    for number, (spread, outcome, later_s) in enumerate(steps):
        now_s += later_s
        start = RecordedStart(of_family(number), "H100", 2, spread=spread, at_s=now_s)
        if made.why_record(start, asked=False) is not None:
            made.put(a_recording(number, now_s, outcome, spread=spread))
            ordered[spread].append(outcome)
    for outcomes in ordered.values():
        told = [outcome for outcome in outcomes if outcome is not None and outcome.timed]
        assert len(told) <= 1
        assert outcomes.count(NOTHING) <= MOST_TRIES
        assert len(outcomes) <= MOST_TRIES + MOST_CUT_SHORT
        assert not told or outcomes[-1] is told[0], "it was not recorded after it was known"


@given(
    st.permutations([a_recording(n, n * 10.0, found(0.5 + n), spread=n % 2 == 0) for n in range(6)])
)
def test_beliefs_do_not_depend_on_the_order_in_which_evidence_came(
    recordings: list[Recording],
) -> None:
    ordered = sorted(recordings, key=lambda one: one.order_time_s)
    assert knowing(*recordings).of(of_family()) == knowing(*ordered).of(of_family())
