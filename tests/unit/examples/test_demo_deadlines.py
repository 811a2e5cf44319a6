"""The judge of `make demo-many`: promises of jobs that moved are kept, or told of in time."""

from __future__ import annotations

from typing import Any

import pytest

from deadlines_kept import (
    GIVEN_UP,
    KEPT,
    MOVED_AND_KEPT,
    NO_DEADLINE,
    REFUSED,
    StayAt,
    chain,
    offered_deadline,
    outcome,
)
from proof import ProofFailed
from where_jobs_ran import JobThatRan, sums, table

DUE_M, LAB, ROOF = 30, "lab", "roof"


def at(minute: int) -> str:
    return f"2030-01-01T08:{minute:02}:00Z"


def a_stay(
    cluster: str, *kinds: str, ends: int = 10, told: int = 5, offered: str = "guaranteed"
) -> StayAt:
    """A job there with these events of its deadline, all in one minute."""
    promise: dict[str, Any] = {"deadlines": [{"due_time": at(DUE_M)}], "guaranteed_index": None}
    if kinds[-1:] == ("promise_made",):
        promise["guaranteed_index"] = 0
    job = {"job_id": "7", "promise": promise, "end_time": at(ends)}
    events = [{"kind": kind, "event_time": at(told)} for kind in kinds]
    return StayAt(cluster, job, events, offered)


@pytest.mark.parametrize(
    ("stays", "word"),
    [
        ([a_stay(ROOF, "promise_made")], KEPT),
        ([a_stay(ROOF, "promise_refused")], REFUSED),
        ([a_stay(LAB, "promise_made", "promise_broken")], GIVEN_UP),
        ([a_stay(LAB, "promise_made"), a_stay(ROOF, "promise_made")], MOVED_AND_KEPT),
        ([a_stay(LAB, "promise_made", "promise_broken"), a_stay(ROOF, "promise_made")],
         MOVED_AND_KEPT),
        ([a_stay(LAB, "promise_made", "promise_broken"), a_stay(ROOF, "promise_refused")],
         GIVEN_UP),
        ([a_stay(LAB, "promise_refused"), a_stay(ROOF, "promise_refused", ends=50)], REFUSED),
        ([a_stay(LAB, "promise_refused"), a_stay(ROOF, "promise_made")], KEPT),
        # The offer had said before the move that it would not be promised.
        ([a_stay(LAB, "promise_made"), a_stay(ROOF, "promise_refused", offered="unguaranteed")],
         GIVEN_UP),
    ],
)  # fmt: skip
def test_the_outcome_of_a_deadline(stays: list[StayAt], word: str) -> None:
    assert outcome(stays, LAB) == word


@pytest.mark.parametrize(
    ("stays", "told"),
    [
        ([a_stay(ROOF, "promise_made", ends=31)], "ended after its promised deadline"),
        ([a_stay(ROOF, "promise_made", "promise_broken")], "roof:7 lost its promise"),
        ([a_stay(LAB, "promise_made", "promise_broken", told=40)], "told after its deadline"),
        ([a_stay(LAB, "promise_made"), a_stay(ROOF, "promise_made", ends=31)], "roof:7 ended"),
        ([a_stay(LAB, "promise_made"), a_stay(ROOF, "promise_refused")], "was refused"),
        ([a_stay(ROOF, "promise_missed", "promise_made")], "was broken"),
    ],
)
def test_a_promise_that_was_broken_is_found(stays: list[StayAt], told: str) -> None:
    with pytest.raises(ProofFailed, match=told):
        outcome(stays, LAB)


def test_a_job_without_a_deadline_has_none() -> None:
    stay = a_stay(ROOF)
    assert outcome([stay._replace(job={**stay.job, "promise": None})], LAB) == NO_DEADLINE


def test_where_a_job_ran_and_why() -> None:
    offers = [
        {"cluster": LAB, "why": "costs 0.01 less than roof", "promise_state": "guaranteed"},
        {"cluster": ROOF, "why": None, "promise_state": None},
    ]
    first: dict[str, Any] = {"name": "a", "cluster": LAB, "global_name": "lab:7"}
    first["moved_from"] = None
    then: dict[str, Any] = {"name": "a", "cluster": ROOF, "global_name": "roof:2"}
    then["moved_from"] = "lab:7"
    first["offers"] = then["offers"] = offers
    assert [*chain(then, {"lab:7": first, "roof:2": then})] == [then, first]
    assert (offered_deadline(first), offered_deadline(then)) == ("guaranteed", "")
    ran = [JobThatRan(first, LAB, "", KEPT), JobThatRan(then, ROOF, LAB, MOVED_AND_KEPT)]
    assert [line.split("  ")[-1].strip() for line in table(ran, [LAB, ROOF]).splitlines()] == [
        "WHY", "costs 0.01 less than roof", "lab was emptied; its only offer", "",
        "WHY", "costs less (1)", "lab was emptied (1)",
    ]  # fmt: skip
    assert sums(ran)[0].startswith("all 2 jobs completed")
    assert "1 promised and kept; 1 promised anew" in sums(ran)[1]
