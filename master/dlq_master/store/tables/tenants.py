"""Stored values of teams, of reservations, of waiting times, and of forecasts of starts."""

from __future__ import annotations

from typing import Final, NamedTuple

from dlq_master.model.ids import JobId, NodeId


class TeamRules(NamedTuple):
    """Settings of a team, or of one member within it; None: nothing. Numbers are GPUs or jobs."""

    gpu_quota: int | None = None  # by right; what it runs beyond them it borrows
    gpu_limit: int | None = None  # the most that it holds, borrowed ones included
    running_jobs: int | None = None
    queued_jobs: int | None = None  # that have not ended
    share: float | None = None  # 1 if nothing is told


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
