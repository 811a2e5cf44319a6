"""Windows, idle verdicts and paces of steps as values, without a master."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.activity import (
    GangSends,
    IdleAction,
    IdleRule,
    StallRule,
    StepPace,
    UseSpan,
    UseWindow,
    Worker,
    behind,
    busiest,
    is_idle,
    mean_use,
)

RULE = IdleRule(
    window_s=1800.0,
    interactive_window_s=7200.0,
    below=0.05,
    action=IdleAction.PAUSE,
    dry_run=False,
)
JOB = Worker("ada", "vision", "default", "train", "17", False)
EVERY_S = 30.0


def window(*uses: float, longest_s: float = 1800.0) -> tuple[UseWindow, float]:
    """One report every 30 s with these uses, and the instant of the last."""
    made, now_s = UseWindow(longest_s), 1000.0
    for use in uses:
        now_s += EVERY_S
        made.add(now_s, UseSpan(EVERY_S, EVERY_S * use))
    return made, now_s


def test_less_than_a_window_is_never_idle() -> None:
    made, _ = window(*[0.0] * 59)
    assert made.busy_s(1800.0) is None


def test_a_window_without_any_use_is_idle() -> None:
    made, now_s = window(*[0.0] * 60)
    assert is_idle(RULE, JOB, mean_use({"n": made}, ["n"], 1800.0, now_s), None, now_s)


def test_bursts_within_the_window_count_by_their_mean() -> None:
    """A burst of 30 s every 5 minutes is 9 % of use: above 5 %. One every 20 minutes is below."""
    often, now_s = window(*([0.9] + [0.0] * 9) * 8)
    assert not is_idle(RULE, JOB, mean_use({"n": often}, ["n"], 1800.0, now_s), None, now_s)
    seldom, now_s = window(*([0.9] + [0.0] * 39) * 4)
    assert is_idle(RULE, JOB, mean_use({"n": seldom}, ["n"], 1800.0, now_s), None, now_s)


def test_a_gap_between_reports_counts_as_busy() -> None:
    made, now_s = window(*[0.0] * 60)
    made.add(now_s + 600.0, UseSpan(EVERY_S, 0.0))
    assert made.busy_s(1800.0) == pytest.approx(570.0, rel=0.1)


def test_late_reports_leave_no_gap() -> None:
    made, now_s = UseWindow(1800.0), 0.0
    for number in range(70):
        now_s = number * EVERY_S + (3.0 if number % 2 else 0.0)
        made.add(now_s, UseSpan(EVERY_S, 0.0))
    assert made.busy_s(1800.0) == 0.0


def test_a_clock_that_goes_back_begins_anew() -> None:
    made, now_s = window(*[0.0] * 60)
    made.add(now_s - 3600.0, UseSpan(EVERY_S, 0.0))
    assert made.busy_s(1800.0) is None


def test_all_nodes_of_a_job_must_be_idle_and_known_just_now() -> None:
    idle, now_s = window(*[0.0] * 60)
    busy, _ = window(*[0.8] * 60)
    assert mean_use({"a": idle, "b": busy}, ["a", "b"], 1800.0, now_s) == pytest.approx(0.8)
    assert mean_use({"a": idle}, ["a", "b"], 1800.0, now_s) is None
    assert mean_use({"a": idle}, ["a"], 1800.0, now_s + 91.0) is None


def test_the_busiest_gpu_decides_and_the_unseen_part_is_busy() -> None:
    assert busiest([(30.0, 30.0, 0.0), (30.0, 30.0, 0.5)]) == UseSpan(30.0, 15.0)
    assert busiest([(30.0, 20.0, 0.0)]) == UseSpan(30.0, 10.0)


def test_a_job_that_tells_steps_is_never_idle() -> None:
    assert not is_idle(RULE, JOB, 0.0, 5000.0 - 1799.0, 5000.0)
    assert is_idle(RULE, JOB, 0.0, 5000.0 - 1801.0, 5000.0)


def test_an_interactive_job_has_a_window_of_its_own() -> None:
    assert RULE.window_of(JOB._replace(interactive=True)) == 7200.0


@pytest.mark.parametrize(
    ("rule", "covers"),
    [
        (RULE, True),
        (replace(RULE, queue="other"), False),
        (replace(RULE, team="vision"), True),
        (replace(RULE, team="speech"), False),
        (replace(RULE, exempt_users=frozenset({"ada"})), False),
        (replace(RULE, exempt_jobs=frozenset({"train"})), False),
        (replace(RULE, exempt_jobs=frozenset({"17"})), False),
    ],
)
def test_rules_cover_jobs_by_queue_team_and_exemptions(rule: IdleRule, covers: bool) -> None:
    assert rule.covers(JOB) is covers


@given(st.lists(st.tuples(st.floats(1.0, 120.0), st.floats(0.0, 1.0)), min_size=1, max_size=300))
def test_a_window_stays_small_and_never_tells_less_than_was_busy(
    reports: list[tuple[float, float]],
) -> None:
    made, now_s = UseWindow(1800.0), 0.0
    for span_s, use in reports:
        now_s += span_s
        made.add(now_s, UseSpan(span_s, span_s * use))
    assert len(made.spans) <= 66
    total_s = sum(span_s for span_s, _ in reports)
    busy_s = made.busy_s(1800.0)
    assert (busy_s is None) == (total_s < 1800.0 - 1e-6) or abs(total_s - 1800.0) < 1e-6
    if busy_s is not None:
        left_s, least_s = 1800.0, 0.0
        for span_s, use in reversed(reports):
            part_s = min(span_s, left_s)
            least_s, left_s = least_s + part_s * use, left_s - part_s
        grain_s = 1800.0 / 32 + 120.0
        assert abs(busy_s - least_s) <= grain_s + 1e-6


# --- steps ----------------------------------------------------------------------------------------

STALL = StallRule(2.0, 20.0)


def test_a_pace_is_known_after_two_steps() -> None:
    first = StepPace(1, 10, 100.0)
    assert first.patience_s(STALL) is None
    assert first.heard(11, 130.0).patience_s(STALL) == 2 * 30.0 + 20.0


def test_a_slow_step_counts_at_once_and_is_forgotten_little_by_little() -> None:
    pace = StepPace(1, 0, 0.0).heard(10, 10.0)
    assert pace.step_s == 1.0
    slow = pace.heard(11, 16.0)
    assert slow.step_s == 6.0
    assert slow.heard(21, 26.0).step_s == pytest.approx(5.0)


def test_a_spell_that_it_survived_is_no_stall_the_next_time() -> None:
    pace = StepPace(1, 0, 0.0).heard(10, 10.0)._replace(silent_s=290.0).heard(200, 310.0)
    assert pace.patience_s(STALL) == 2 * 290.0


def test_a_line_that_was_cut_is_no_spell() -> None:
    pace = StepPace(1, 0, 0.0).heard(10, 10.0).heard(310, 310.0)
    assert pace.patience_s(STALL) == 2 * 1.0 + 20.0


def test_a_step_that_goes_back_begins_anew() -> None:
    assert StepPace(1, 50, 100.0, 1.0, 2.0).heard(40, 110.0) == StepPace(1, 40, 110.0)


@pytest.mark.parametrize(
    ("steps", "cores", "rank"),
    [
        ({0: 9, 1: 9, 2: 7, 3: 9}, {}, 2),
        ({0: 9, 1: 7, 2: 7, 3: 9}, {}, None),
        ({0: 9}, {0: 1.0, 1: 0.0, 2: 1.0, 3: 1.0}, 1),
        ({0: 9}, {0: 0.0, 1: 0.0, 2: 2.0, 3: 0.0}, 2),
        ({0: 9}, {0: 1.0, 1: 0.0}, None),
        ({0: 9}, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, None),
        ({0: 9}, {}, None),
    ],
)
def test_the_rank_that_fell_behind_is_named_only_if_it_alone_stands_out(
    steps: dict[int, int], cores: dict[int, float], rank: int | None
) -> None:
    found = behind(steps, cores, 4)
    assert (None if found is None else found[0]) == rank


def sending(*sent_s: float, looked_s: float = 100.0, quiet_s: float = 2.0) -> GangSends:
    made = GangSends()
    for rank, last_s in enumerate(sent_s):
        made.hear(rank, looked_s, looked_s - last_s, quiet_s)
    return made


def test_the_rank_that_sent_first_for_the_last_time_is_behind() -> None:
    assert sending(51.0, 50.0, 51.2).behind() == (1, "it stopped to send 1.0 s before any other")
    assert sending(51.0, 50.9, 51.2).behind() is None, "reports are not so exact"
    assert sending(50.0).behind() is None


def test_ranks_that_send_nothing_for_long_are_stalled_and_each_must_have_been_looked_at() -> None:
    rule = StallRule(2.0, 15.0)
    assert sending(51.0, 50.0).silent_s(rule, 2, 110.0) == 59.0
    assert sending(51.0, 50.0).silent_s(rule, 3, 110.0) is None
    assert sending(51.0, 82.0).silent_s(rule, 2, 110.0) is None, "one has sent 18 s before"
    assert sending(51.0, 50.0).silent_s(rule, 2, 200.0) is None, "the looks are old"
    assert sending(51.0, 50.0, quiet_s=20.0).silent_s(rule, 2, 110.0) is None
    assert sending(51.0, 50.0, quiet_s=0.0).silent_s(rule, 2, 110.0) is None
