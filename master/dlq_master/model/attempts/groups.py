"""Jobs that start together and end together: the consequences of their states for each of them.

A group is an array whose tasks have specs of their own (`model/jobs/eligible.py`). The rules look
at the present states alone, never at how they came to be. So a master that restarts decides the
same, and a rule that was followed asks for nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.exit_zero import COMES_BACK
from dlq_master.model.attempts.gang import ended_by_node
from dlq_master.model.jobs.eligible import MemberEnds
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.naming import member_name
from dlq_master.model.transitions import StopCause

_MEMBER = "member "  # with this word begins why a member leaves its GPUs for another one


class KnownMember(NamedTuple):
    """A member that is still known, and its live attempt."""

    job: Job
    attempt: Attempt | None = None

    @property
    def ends(self) -> MemberEnds:
        group = self.job.group
        return MemberEnds.ALONE if group is None else group.member(self.job.array_index)[0].ends

    @property
    def runs_on(self) -> bool:
        """It holds GPUs, and nobody has told it to leave them."""
        return self.attempt is not None and self.attempt.stop_cause is None


class Follows(NamedTuple):
    """A member is cancelled (`ends`), or leaves its GPUs and waits again; and why."""

    job: Job
    ends: bool
    why: str


def consequences(parts: Sequence[KnownMember]) -> list[Follows]:
    """Everything that follows for the members that have not ended; empty: all is as it should be.

    1. One end of a member ends the group: all others are cancelled.
    2. A member has left its GPUs, or is leaving them to come back: all others leave theirs too.
    """
    living = [part for part in parts if not part.job.ended]
    over = next(_endings(parts), None)
    if over is not None:
        return [Follows(part.job, True, over) for part in living]
    why = next(_departures(living), None)
    if why is None:
        return []
    return [Follows(part.job, False, why) for part in living if part.runs_on]


def keeps_until_s(
    attempt: Attempt,
    end: on_attempt.AttemptEvent,
    others: Sequence[KnownMember],
    now_s: float,
    keep_s: float,
) -> float | None:
    """Until when the GPUs of a member that ended so wait for its group; None: they do not.

    A node has failed this member, or the member has left for another one that a node has failed.
    The first of them to end sets one instant for all. A member that has nothing left has it too:
    its group is first in line for other GPUs.
    """
    own = ended_by_node(attempt, end)
    if not own and not _left_for_another(attempt, end):
        return None
    set_s = [part.job.kept.until_s for part in others if part.job.kept is not None]
    leaving = (part.attempt for part in others if part.attempt is not None)
    if not (own or set_s or any(it.stop_cause is StopCause.DRAIN for it in leaving)):
        return None
    until_s = min(set_s, default=now_s + keep_s)
    return until_s if until_s > now_s else None


# --- helpers, in order of use ---------------------------------------------------------------------


def _endings(parts: Sequence[KnownMember]) -> Iterator[str]:
    """A good end counts before a bad one: after it the others are cancelled too."""
    for part in parts:
        if part.ends is MemberEnds.ALL and part.job.state is JobState.COMPLETED:
            yield f"member {member_name(part.job)} has completed, and with it the group"
    for part in parts:
        job = part.job
        if job.ended and job.state is not JobState.COMPLETED and part.ends is not MemberEnds.ALONE:
            yield f"member {member_name(job)} of the group is {job.state.value}"


def _departures(living: Sequence[KnownMember]) -> Iterator[str]:
    """All members run, or none does."""
    if not any(part.runs_on for part in living):
        return
    for part in living:
        attempt, name = part.attempt, member_name(part.job)
        if attempt is None:
            yield f"{_MEMBER}{name} of its group has left its GPUs"
        elif attempt.stop_cause in COMES_BACK:
            cause = attempt.stop_cause
            yield f"{_MEMBER}{name} of its group is leaving ({cause.value if cause else ''})"


def _left_for_another(attempt: Attempt, end: on_attempt.AttemptEvent) -> bool:
    told = attempt.stop_cause is StopCause.PREEMPT and attempt.stop_detail.startswith(_MEMBER)
    return told and isinstance(end, on_attempt.Preempted | on_attempt.PreemptedLost)
