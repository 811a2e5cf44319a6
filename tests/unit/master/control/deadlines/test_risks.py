"""When a promise that was at risk is told to be safe: not every time that nothing is wrong for a
moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from dlq_master.control.deadlines.risks import CALM_S, LONGEST_CALM_S, Risk, Risks, calm_s
from dlq_master.model.ids import JobId
from support.builders import a_job

JOB = JobId(1)
LOOK_S = 10.0


def told(looks: Iterable[bool]) -> tuple[Risks, list[tuple[float, str]]]:
    """What the owner hears of a job that is at risk in these looks, and not in the others."""
    risks, heard = Risks(), []
    for n, wrong in enumerate(looks):
        now_s = n * LOOK_S
        if wrong and JOB not in risks.told:
            risks.told[JOB] = Risk(now_s, "because", a_job(1, 1))
            heard.append((now_s, "at risk"))
        for job_id in risks.calmed({JOB} if wrong else set(), now_s):
            risks.over(job_id)
            heard.append((now_s, "safe"))
    return risks, heard


def test_one_moment_without_a_risk_is_not_safe() -> None:
    _, heard = told([True, False, False, True, False, False, False, False])
    assert heard == [(0.0, "at risk"), (70.0, "safe")]


def test_who_was_told_too_early_waits_twice_as_long() -> None:
    once = [True, False, False, False, False]
    _, heard = told([*once, *once, *[False] * 5])
    assert heard == [(0.0, "at risk"), (40.0, "safe"), (50.0, "at risk"), (120.0, "safe")]
    assert [calm_s(times) for times in (0, 1, 2, 50)] == [30.0, 60.0, 120.0, LONGEST_CALM_S]


@given(st.lists(st.booleans(), max_size=400))
def test_whatever_happens_it_is_told_seldom_and_the_last_word_is_true(looks: list[bool]) -> None:
    _, heard = told(looks)
    words = [word for _, word in heard]
    assert words == ["at risk", "safe"] * (len(words) // 2) + ["at risk"] * (len(words) % 2)
    spent_s = sum(calm_s(times) for times in range(words.count("safe")))
    assert spent_s <= len(looks) * LOOK_S
    if looks and looks[-1]:
        assert words[-1] == "at risk", "a risk is told at once"
    _, heard = told([*looks, *[False] * round(LONGEST_CALM_S / LOOK_S + 1)])
    assert not heard or heard[-1][1] == "safe"


def test_a_promise_that_is_over_takes_its_count_with_it() -> None:
    risks, _ = told([True, *[False] * 6])
    assert risks.safe == {JOB: 1}
    risks.forget({JOB: None})
    assert risks.safe == {JOB: 1}
    risks.forget({})
    assert risks.safe == {}
    assert CALM_S > LOOK_S
