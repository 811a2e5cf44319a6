"""Judges the deadlines of jobs that may have moved between clusters.

Each promise is kept, or it was refused or given up while its user could still act.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from proof import ProofFailed
from site_of_jobs import Job

# The outcomes for one job.
NO_DEADLINE = "no deadline"
KEPT = "promised and kept"
MOVED_AND_KEPT = "promised anew after its move and kept"
REFUSED = "refused at the submission"
GIVEN_UP = "given up when its cluster was emptied"
OUTCOMES = (KEPT, MOVED_AND_KEPT, GIVEN_UP, REFUSED, NO_DEADLINE)

_MADE, _OVER = "promise_made", ("promise_broken", "promise_dropped")


class StayAt(NamedTuple):
    """A job at one cluster, with the events there. `offered`: the word of that cluster's offer on
    its deadline, before it got the job; "": none.
    """

    cluster: str
    job: Job
    events: Sequence[Job]
    offered: str


def outcome(stays: Sequence[StayAt], emptied: str) -> str:
    """Of one job, by its clusters in order. ProofFailed: a promise was broken. Only the cluster
    that is emptied may give promises up, and only before the deadline.
    """
    *left, last = stays
    if all(stay.job["promise"] is None for stay in stays):
        return NO_DEADLINE  # one that has passed is left out of the next move
    for stay in stays:
        _check_given_up(stay, emptied)
    for before, after in zip(left, stays[1:], strict=True):
        # Its user has moved it, so the offer must have told what comes.
        if _stands(before) and not _was_made(after) and after.offered == "guaranteed":
            raise ProofFailed(
                f"{_name(before)} was promised its deadline, and so was {_name(after)} by its "
                f"offer, which was refused: {after.job['promise']}"
            )
    if _stands(last):
        _check_in_time(last)
        return MOVED_AND_KEPT if any(_was_made(stay) for stay in left) else KEPT
    return GIVEN_UP if any(_was_made(stay) for stay in stays) else REFUSED


def chain(hand: Job, made: Mapping[str, Job]) -> Iterator[Job]:
    """The hand-overs of one job, the newest first; `made`: all, by the global name of their job."""
    found: Job | None = hand
    while found is not None:
        yield found
        found = made.get(found["moved_from"] or "")


def offered_deadline(hand: Job) -> str:
    """The word of the offer that got the job on its deadline; "": none."""
    answers = [one for one in hand["offers"] if one["cluster"] == hand["cluster"]]
    return answers[0]["promise_state"] or "" if answers else ""


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_given_up(stay: StayAt, emptied: str) -> None:
    for event in stay.events:
        if event["kind"] in _OVER and stay.cluster != emptied:
            raise ProofFailed(f"{_name(stay)} lost its promise: {event}")
        if event["kind"] in _OVER and _at(event["event_time"]) > _due(stay.job, -1):
            raise ProofFailed(f"{_name(stay)} was told after its deadline: {event}")


def _was_made(stay: StayAt) -> bool:
    return any(event["kind"] == _MADE for event in stay.events)


def _stands(stay: StayAt) -> bool:
    """Promised, and not given up since then."""
    kinds = [event["kind"] for event in stay.events if event["kind"] in (_MADE, *_OVER)]
    return kinds[-1:] == [_MADE]


def _check_in_time(stay: StayAt) -> None:
    index = stay.job["promise"]["guaranteed_index"]
    if index is None or any(event["kind"] == "promise_missed" for event in stay.events):
        raise ProofFailed(f"the promise of {_name(stay)} was broken: {stay.job['promise']}")
    if _at(stay.job["end_time"]) > _due(stay.job, index):
        raise ProofFailed(f"{_name(stay)} ended after its promised deadline")


def _due(job: Job, index: int) -> datetime:
    return _at(job["promise"]["deadlines"][index]["due_time"])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _name(stay: StayAt) -> str:
    return f"{stay.cluster}:{stay.job['job_id']}"
