"""Reasons that keep a job from waiting at all: its begin, other jobs, the limit of its array, a
failure that was not its own. Pure values.

A job that may not wait yet has `blocked` set and is in no index of the cluster, so that no plan
looks at it. Its driver unblocks it: the master's `control/jobs/gates.py`; the simulator has none.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import JobId


class Block(StrEnum):
    """The main thing that a job waits for before it may wait for GPUs; codes of `why`."""

    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    ARRAY_LIMIT = "array_limit"
    BACKOFF = "backoff"


class MemberEnds(StrEnum):
    """The meaning of a member's end for its group."""

    ALL = "all"  # once it has completed, the group has succeeded, and the others are stopped
    EACH = "each"  # it may complete before the others; its failure is that of the group
    ALONE = "alone"  # no end of it concerns the others


class GroupedMember(NamedTuple):
    """A part of a group: so many jobs alike."""

    name: str
    jobs: int = 1
    ends: MemberEnds = MemberEnds.EACH


class Array(NamedTuple):
    """The common values of an array's tasks; their ids follow that of the array, in order.

    With `members` it is a group: its tasks have specs of their own, and start and end together.
    """

    array_id: JobId  # no job has it
    tasks: int
    concurrent: int  # so many may wait or run at a time; 0 = all
    first: int
    last: int
    step: int
    members: tuple[GroupedMember, ...] = ()

    def member(self, index: int) -> tuple[GroupedMember, int]:
        """The member of a group that the task of this index is, and which of its jobs, from 0."""
        for member in self.members:
            if index < member.jobs:
                return member, index
            index -= member.jobs
        raise ValueError(f"{self.array_id} has no such member")


class Relation(StrEnum):
    """The required end of the other job."""

    AFTER = "after"  # it has started, or ended
    AFTEROK = "afterok"  # it has completed
    AFTERNOTOK = "afternotok"  # it has ended otherwise
    AFTERANY = "afterany"  # it has ended
    AFTERCORR = "aftercorr"  # as AFTEROK; each task of an array by its own index in the other one
    SINGLETON = "singleton"  # earlier jobs of the same user and name have ended


class Term(NamedTuple):
    """One part of a dependency. Once it is met, or can never be, that is kept."""

    relation: Relation
    target: JobId = JobId(0)  # a job; with `array` all tasks of that array; 0 for singleton
    array: bool = False
    met: bool | None = None  # None: not decided yet; False: never
    delay_s: float = 0.0  # so long after the start; with AFTER
    due_s: float | None = None  # when that delay is over; None: there is none, or it has not begun

    def __str__(self) -> str:
        return self.named(str(self.target))

    def named(self, target: str) -> str:
        """`after:12+5`, with the target by that name; the delay is in minutes."""
        delay = f"+{round(self.delay_s / 60)}" if self.delay_s else ""
        return f"{self.relation.value}:{target}{delay}" if self.target else self.relation.value


class Dependency(NamedTuple):
    """All terms, or any one of them, and the consequence when it can never come true."""

    terms: tuple[Term, ...]
    any: bool = False
    cancel_if_never: bool = False

    @property
    def met(self) -> bool | None:
        """None: not decided yet; False: never."""
        known = [term.met for term in self.terms]
        decisive = self.any  # one met term is enough for OR, one that never is for AND
        if decisive in known:
            return decisive
        return None if None in known else not decisive

    def __str__(self) -> str:
        return ("?" if self.any else ",").join(map(str, self.terms))
