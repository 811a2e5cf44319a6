"""The term grid and the hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.lease import (
    LeaseKind,
    Terms,
    decision_time_s,
    first_term_end_s,
    hold_until_s,
    next_boundary_s,
    renewed_term_end_s,
    requeue_time_s,
)

INSTANTS = st.floats(0.0, 4e9, allow_nan=False)


@given(INSTANTS, st.sampled_from([1.0, 7.0, 300.0, 1200.0]))
def test_the_next_boundary_lies_ahead_by_at_most_one_term(now_s: float, term_s: float) -> None:
    boundary_s = next_boundary_s(now_s, term_s)
    assert now_s < boundary_s <= now_s + term_s
    assert boundary_s % term_s == 0.0


@given(INSTANTS)
def test_an_slo_boundary_is_always_a_be_boundary_too(now_s: float) -> None:
    terms = Terms()
    assert next_boundary_s(now_s, terms.slo_term_s) % terms.be_term_s == 0.0


@given(INSTANTS, st.sampled_from([LeaseKind.BE, LeaseKind.SLO]))
def test_work_that_starts_is_not_judged_before_it_could_save(now_s: float, kind: LeaseKind) -> None:
    terms = Terms()
    end_s = first_term_end_s(now_s, kind, terms, terms.save_lead_s)
    assert decision_time_s(end_s, terms.save_lead_s) > now_s - 1e-6
    assert end_s - now_s <= terms.term_s(kind) + terms.save_lead_s


def test_a_renewed_term_ends_one_boundary_later() -> None:
    terms = Terms()
    assert renewed_term_end_s(600.0, LeaseKind.BE, terms) == 900.0
    assert renewed_term_end_s(600.0, LeaseKind.SLO, terms) == 1200.0


def test_gpus_are_reclaimed_only_after_the_job_has_stopped_itself() -> None:
    terms = Terms()
    assert hold_until_s(50.0, terms.hold_s) == 3650.0
    assert requeue_time_s(50.0, terms.hold_s, terms) == 3655.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"slo_term_s": 1000.0},
        {"be_term_s": 0.0},
        {"save_lead_s": 300.0},
        {"heartbeat_s": 30.0},
        {"hold_s": 24.0},
    ],
)
def test_terms_that_contradict_each_other_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Terms(**wrong)  # type: ignore[arg-type]  # floats all
