"""Stored values of teams, of grants between organisations, of reservations, of waiting times, and
of forecasts of starts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from dlq_master.model.ids import JobId, NodeId


class TeamRules(NamedTuple):
    """Settings of a team, or of one member within it; None: no rule.

    `gpu_quota`: GPUs it holds by right; it borrows all others. `gpu_limit`: the most GPUs it holds,
    borrowed ones included. `running_jobs`, `queued_jobs`: numbers of jobs; ended jobs count in
    neither. `share`: its weight in fair share; None: 1.
    """

    gpu_quota: int | None = None
    gpu_limit: int | None = None
    running_jobs: int | None = None
    queued_jobs: int | None = None
    share: float | None = None


class Member(NamedTuple):
    """A user in a team; `default`: the user's jobs count to it unless they name another team."""

    user: str
    rules: TeamRules = TeamRules()
    default: bool = False


class Team(NamedTuple):
    """A team of users. `slo_quota`: GPUs of its jobs with promised deadlines, at a time."""

    name: str
    created_time_s: float
    rules: TeamRules = TeamRules()
    slo_quota: int | None = None
    members: tuple[Member, ...] = ()  # by user
    version: int = 1

    def member(self, user: str) -> Member | None:
        return next((one for one in self.members if one.user == user), None)


class GrantState(StrEnum):
    """Whether guests may come, and why not. The last two are for good."""

    GOOD = "good"
    SPENT = "spent"  # until the next period
    ENDED = "ended"
    REVOKED = "revoked"
    REPLACED = "replaced"  # by a later one of the same organisation


OPEN_GRANTS: Final = (GrantState.GOOD, GrantState.SPENT, GrantState.ENDED)


_CLOSED: Final = {
    GrantState.ENDED: "has ended",
    GrantState.REVOKED: "was revoked",
    GrantState.REPLACED: "was replaced by another one",
}
_THROUGH: Final = "grant-"  # in certificates of guests, where others name a service


def through_word(serial: str) -> str:
    """The word of a grant in certificates of its guests."""
    return f"{_THROUGH}{serial}"


def serial_in(through: str) -> str:
    """The serial in such a word; "" in any other."""
    return through.removeprefix(_THROUGH) if through.startswith(_THROUGH) else ""


class GrantLimits(NamedTuple):
    """The limits of all guests of a grant together; None: none. `queues`: never empty."""

    gpus: int
    queues: tuple[str, ...]
    gpu_hours: float | None = None  # in each period
    period_days: int = 30
    running_jobs: int | None = None
    guaranteed: int = 0
    quota: int = 0


class GuestAccount(NamedTuple):
    """An account of the host in which the jobs of one guest run."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class GivenGrant(NamedTuple):
    """GPUs that this cluster lends to another organisation. The row is the truth; the signed
    document is a proof for the other one.
    """

    serial: str  # hexadecimal
    organisation: str  # the word for it here
    ca: str  # PEM of its roots
    team: str  # whose limits are those of the grant
    accounts: tuple[GuestAccount, ...]
    limits: GrantLimits
    made_s: float
    until_s: float
    made_by: str
    since_day: int  # the account of the organisation counts from this day of UTC
    state: GrantState = GrantState.GOOD
    reason: str = ""

    def state_at(self, now_s: float) -> GrantState:
        """Its state now. It ends at its time, also before anybody has written that down."""
        ends = self.state in OPEN_GRANTS and now_s >= self.until_s
        return GrantState.ENDED if ends else self.state

    def refusal(self, now_s: float) -> str:
        """Why no guest may come under it; "": they may. A spent one lets them look at their
        jobs.
        """
        words = _CLOSED.get(self.state_at(now_s), "")
        return f"the grant {self.serial} of {self.organisation} {words}" if words else ""


class HeldGrant(NamedTuple):
    """A grant that this cluster has got from another one, and the last statement of its use."""

    serial: str
    organisation: str
    ca: str  # PEM of the roots of the other one
    join_address: str
    team: str
    limits: GrantLimits
    made_s: float
    until_s: float  # by the clock of the other one
    users: tuple[str, ...] = ()  # who may use it; none: all
    owed_gpu_s: float = 0.0
    owed_until_s: float | None = None  # None: no statement has come
    statement: str = ""  # the document


class Reservation(NamedTuple):
    """Nodes that take no work from `begin_s` to `end_s`; `active`: it has begun."""

    reservation_id: str
    node_ids: tuple[NodeId, ...]
    begin_s: float
    end_s: float
    reason: str
    created_by: str
    created_time_s: float
    active: bool = False


class Spent(NamedTuple):
    """How long a reason has held, and how long it was the main one. `code`: its word, with its
    subject behind a space (model.why.Kind)."""

    code: str
    held_s: float
    main_s: float


class Waited(NamedTuple):
    """How long a job has waited for what, until `at_s`; then `now` held (words, as in `spent`), the
    main one first.
    """

    job_id: JobId
    spent: tuple[Spent, ...]
    at_s: float
    now: tuple[str, ...] = ()


MOST_COMPARED: Final = 1_000  # the newest


class Foreseen(NamedTuple):
    """The first range of starts that the owner of a job could see, at `at_s`; `started_s`: when it
    did start. Instants; `high_s` may be infinite."""

    job_id: JobId
    at_s: float
    low_s: float
    likely_s: float
    high_s: float
    started_s: float | None = None
