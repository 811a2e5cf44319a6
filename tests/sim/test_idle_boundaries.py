"""Boundaries at which there is nothing to decide are passed over, and nobody can tell."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_simulator.errors import SimulateError
from dlq_simulator.replay import boundaries
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support.extent import times

Row = tuple[float, int, float]  # submit, GPUs, duration
LAS = ("tiresias-las", "thresholds=60,700")
CHOICES = (
    LAS,
    (*LAS, "promote_knob=2", "term_s=60", "save_s=10", "resume_s=25"),
    (*LAS, "starve_limit_s=120", "term_s=0.7", "save_s=0.1", "resume_s=0"),
    ("tiresias-gittins", "thresholds=60", "refresh=2", "term_s=61", "save_s=7.3"),
    ("sf", "term_s=60", "save_s=7", "resume_s=5"),
    ("srtf", "term_s=0.3", "save_s=0", "resume_s=0"),
    ("timeslice", "term_s=60", "save_s=7", "resume_s=5"),
    ("themis", "term_s=33.3", "save_s=7", "resume_s=5"),
    ("afs", "term_s=60", "save_s=7", "resume_s=5"),
    ("aryl", "term_s=60", "save_s=7", "resume_s=5"),
)


def ran(rows: list[Row], choice: tuple[str, ...]) -> tuple[Result, int]:
    """The replay on two GPUs, and how many turns it took."""
    jobs = [
        TraceJob(job_id=str(n), submit_time_s=at_s, num_gpus=gpus, duration_s=lasts_s)
        for n, (at_s, gpus, lasts_s) in enumerate(sorted(rows))
    ]
    (chosen,) = read_settings([choice[0]], choice[1:])
    turns: list[float] = []
    spec = ClusterSpec(name="1x2", groups=(NodeGroup(count=1, gpus=2),))
    found = replay(
        Trace.of("t", jobs), spec, chosen, watch=lambda _, __, now_s: turns.append(now_s)
    )
    return found, len(turns)


ROWS = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 2), st.integers(1, 900)), min_size=1, max_size=6
)
SCALES = st.sampled_from([1, 0.37])  # whole seconds, and not


@given(rows=ROWS, scale=SCALES, choice=st.sampled_from(CHOICES))
@settings(max_examples=times(20, 40), deadline=None)
def test_what_is_passed_over_changes_nothing(
    rows: list[Row], scale: float, choice: tuple[str, ...]
) -> None:
    scaled = [(at_s * scale, gpus, lasts_s * scale) for at_s, gpus, lasts_s in rows]
    passing, few = ran(scaled, choice)
    with mock.patch.object(boundaries, "only_renews", return_value=False):
        stepping, many = ran(scaled, choice)
    assert (passing.outcomes, passing.metrics) == (stepping.outcomes, stepping.metrics)
    assert few <= many


@pytest.mark.parametrize("choice", CHOICES)
def test_a_job_alone_costs_no_turn_a_term(choice: tuple[str, ...]) -> None:
    result, turns = ran([(0, 1, 1e15)], choice)
    assert result.outcomes[0].finish_s == 1e15
    assert turns < 20


def test_who_comes_after_an_age_finds_the_same_grid() -> None:
    result, turns = ran([(0, 2, 10**15), (10**12 - 1, 2, 50)], LAS)
    assert result.outcomes[1].start_s == 10**12 + 200  # the next multiple of 300 s
    assert turns < 40


# Where jobs take turns, each turn changes something, and yet none ends.
@pytest.mark.parametrize("policy", ["srtf", "themis", "timeslice", "tiresias-las"])
@pytest.mark.parametrize("other_s", [10**15, 10**12])
def test_an_age_of_waiting_is_refused_and_not_sat_out(
    monkeypatch: pytest.MonkeyPatch, policy: str, other_s: int
) -> None:
    monkeypatch.setattr(boundaries, "_IN_VAIN", 2_000)
    why = r"would take too long; no job has come or ended in the 2000 turns before 599"
    with pytest.raises(SimulateError, match=why):
        ran([(0, 2, 10**15), (0, 2, other_s)], (policy,))


def test_a_job_that_takes_turns_with_an_endless_one_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boundaries, "_IN_VAIN", 20)
    monkeypatch.setattr(boundaries, "_MOST_AHEAD", 1_000)
    result, turns = ran([(0, 2, 10**15), (0, 2, 100 * 300)], ("timeslice",))
    assert result.outcomes[0].finish_s < 200_000
    assert turns > 200
