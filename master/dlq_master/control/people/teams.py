"""Teams: their members, their rules, and the team to which a job counts.

An agent's restart or a silent line changes nothing. When the master restarts, teams are rows, and
the team of a job stands in the job. A quota or a limit below the present use stops no job. Jobs
beyond a quota borrow from then on, and leave first at a boundary when others have a right to their
GPUs. Beyond a limit no new job starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Final, TypeAlias

from dlq_common.errors import (
    AlreadyExists,
    Conflict,
    IllegalTransition,
    InvalidRequest,
    QuotaExceeded,
    Unsatisfiable,
)
from dlq_common.text.instants import format_instant
from dlq_common.text.suggest import did_you_mean
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.people import counts as crowd
from dlq_master.control.placement import policies
from dlq_master.control.stimuli import SAME, Caller, DeleteTeam, Same, SetTeam, TeamSet
from dlq_master.model.jobs.accounts import account_of, team_of
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.resources import Request
from dlq_master.policy.reasons.accounts import holders
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.stop_costs import expected_end_s
from dlq_master.store.tables.tenants import OPEN_GRANTS, Team, TeamRules

NAMED: Final = 5  # users in a refusal
Given: TypeAlias = "Sequence[tuple[str, str]]"


def _team_is_there(turn: Turn, ask: SetTeam, _word: str) -> bool:
    return ask.team.name in turn.state.people.teams


def _team_as_it_stands(turn: Turn, ask: SetTeam, _word: str) -> TeamSet:
    team = turn.state.people.teams[ask.team.name]
    return TeamSet(team, tuple(_notices(turn.state, team)))


@once(_team_as_it_stands, still=_team_is_there)
def set_team(turn: Turn, ask: SetTeam) -> Done[TeamSet]:
    """Add or change a team. A repeat returns what stands."""
    before = turn.state.people.teams.get(ask.team.name)
    _check_not_granted(turn.state, ask.team.name)
    if ask.team.version and (before is None or before.version != ask.team.version):
        version = 0 if before is None else before.version
        raise Conflict(f"team {ask.team.name} has changed", version=version)
    if before is None and ask.team.name in turn.state.people.users:
        raise AlreadyExists(
            f"{ask.team.name} is a user, and every user is a team of one: choose another name"
        )
    _check_promised(turn.state, ask)
    team = ask.team._replace(
        created_time_s=turn.now_s if before is None else before.created_time_s,
        version=1 if before is None else before.version + 1,
        members=tuple(sorted(ask.team.members)),
    )
    others = list(_without_default(turn.state, team))
    changed = {one.name: one for one in (*others, team)}
    policies.retune(turn, turn.state.people.teams | changed)
    for one in changed.values():
        turn.put(turn.state.people.teams, one)
    turn.note("team_set", actor=ask.caller.actor, team=team.name, **_facts(team))
    return Done(TeamSet(team, tuple(_notices(turn.state, team))), team.name)


def _jobs_of(turn: Turn, ask: DeleteTeam, _word: str) -> int:
    return turn.state.jobs.counts[crowd.of_team(ask.name)]


@once(_jobs_of)
def delete_team(turn: Turn, ask: DeleteTeam) -> Done[int]:
    """Remove a team; an unknown one is gone already. Its jobs go on, without a quota or a limit."""
    _check_not_granted(turn.state, ask.name)
    if ask.name in turn.state.people.teams:
        left = {name: team for name, team in turn.state.people.teams.items() if name != ask.name}
        policies.retune(turn, left)
        turn.drop(turn.state.people.teams, ask.name)
        turn.note("team_deleted", actor=ask.caller.actor, team=ask.name)
    return Done(_jobs_of(turn, ask, ""), ask.name)


def team_for(state: State, user: str, asked: str, given: Given = ()) -> str:
    """To which team a job of this user is counted; "" = the user is in none. `given`: teams that
    groups of an issuer give beside those that the user has joined, each with its group.

    Raises InvalidRequest for any other team, in the same words whether it exists or not. Not
    everybody may learn which teams exist. A team that a group gives is told to exist or not.
    """
    joined = [team for team in state.people.teams.values() if team.member(user) is not None]
    if asked:
        names = sorted({*(team.name for team in joined), *(name for name, _group in given)})
        if asked not in names:
            words = f"{user} is in no team {asked!r}{did_you_mean(asked, names)}"
            hint = f"teams of {user}: {', '.join(names) or 'none'}"
            raise InvalidRequest(words, field="spec.team", hint=hint)
        if not any(asked == team.name for team in joined):
            _check_given(state, user, [one for one in given if one[0] == asked])
        return asked
    chosen = [team for team in joined if (it := team.member(user)) is not None and it.default]
    if chosen:
        return chosen[0].name
    if not joined and given:
        _check_given(state, user, given)
        joined = [state.people.teams[name] for name, _group in given]
    return min(joined, key=lambda team: (team.created_time_s, team.name)).name if joined else ""


def moved(turn: Turn, job: Job, asked: str | Same, caller: Caller) -> Job:
    """The job, counted to another team of its user's if that is asked for. Raises as a submission
    does; IllegalTransition for a job that is promised a deadline, since that counts against the
    quota of its team."""
    given = caller.given_teams if caller.given_teams and caller.owns(job) else ()
    team = job.team if asked is SAME else team_for(turn.state, job.user, asked, given)
    if team == job.team:
        return job
    if job.promised is not None:
        raise IllegalTransition(
            f"job {shown_id(job)} is promised a deadline, by the quota of its team",
            hint=f"take it away first: dlq update {shown_id(job)} deadline=none",
            state=job.state.value,
        )
    check_limits(turn, team, job.user, job.request, 1)
    band = Band.SPOT if job.band in (Band.BORROW, Band.LIMIT) else job.band
    return job._replace(team=team, band=band)


def check_limits(turn: Turn, team: str, user: str, request: Request, count: int) -> None:
    """Raises if so many more jobs with such a request are more than the team, or the user in it,
    may have: Unsatisfiable, since one that is wider than a limit could never start; QuotaExceeded,
    since more jobs may come once others have ended."""
    found = turn.state.people.teams.get(team)
    if found is None or no_difference(turn.state):
        return
    member = found.member(user)
    unit = turn.state.policy.quota_unit
    counts = request.real_base * unit.weight_of(turn.state.cluster, request.shape)
    rules = [(f"team {team}", crowd.of_team(team), found.rules)]
    if member is not None:
        account = crowd.of_account(account_of(team, user))
        rules.append((f"{user} in team {team}", account, member.rules))
    for who, place, told in rules:
        _check_width(who, told, counts)
        check_count(turn, who, place, told.queued_jobs, count)


def check_count(turn: Turn, who: str, place: str, limit: int | None, asked: int) -> None:
    """Raises QuotaExceeded if so many more jobs are too many."""
    used = turn.state.jobs.counts[place] + turn.entered[place]
    if limit is not None and used + asked > limit:
        more = "" if asked == 1 else f" and {asked} more are asked for"
        raise QuotaExceeded(
            f"{who} has {used} jobs that have not ended{_of_whom(turn.state, place)}{more}; the "
            f"limit is {limit}",
            hint=f"nothing was submitted; {_frees(turn.state, place)}",
            limit=limit,
            used=used,
            asked=asked,
        )


def no_difference(state: State) -> str:
    """Why quotas, limits and shares of teams make no difference now; empty: they do."""
    if "team_quota" in PRESETS[state.placement.chosen.policy].settings:
        return ""
    return (
        f"policy {state.placement.chosen.policy} knows no quotas, limits or shares of teams: they "
        "count from the day of one that does, such as dlq"
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_not_granted(state: State, name: str) -> None:
    """IllegalTransition for the team of another organisation: its limits are those of a grant."""
    for grant in state.people.grants.values():
        if grant.team == name and grant.state in OPEN_GRANTS:
            raise IllegalTransition(
                f"team {name} is of the guests of {grant.organisation}, by the grant "
                f"{grant.serial}",
                hint="dlq admin grants give --replace changes its limits",
            )


def _check_given(state: State, user: str, given: Given) -> None:
    """InvalidRequest where a group gives a team that does not exist: without it a job would count
    to no team, and have no limit.
    """
    for name, group in given:
        if name not in state.people.teams:
            raise InvalidRequest(
                f"the group {group!r} of the issuer gives {user} the team {name!r}, and there is "
                "no such team",
                field="spec.team",
                hint=f"an admin makes it: dlq admin team set {name}",
            )


def _of_whom(state: State, place: str) -> str:
    """The members of a team or queue with the most of them; empty for one user's own."""
    found = Counter(state.jobs.counts.by_user(place))
    if len(found) < 2:
        return ""
    return f" ({', '.join(f'{user} {count}' for user, count in found.most_common(NAMED))})"


def _frees(state: State, place: str) -> str:
    """When the first of those that run will have ended, as far as anybody says."""
    ends = [
        expected_end_s(state.cluster.jobs[key.job_id], attempt, attempt.started_time_s)
        for key, attempt in state.cluster.attempts.items()
        if place in crowd.places(state.cluster.jobs[key.job_id])
    ]
    first_s = min(ends, default=inf)
    if first_s == inf:
        return "the same may be asked again once some have ended"
    return (
        "the same may be asked again once some have ended, the first at about "
        f"{format_instant(first_s)}"
    )


def _check_promised(state: State, ask: SetTeam) -> None:
    quota = ask.team.slo_quota
    jobs = (state.cluster.jobs[job_id] for job_id in sorted(state.cluster.promised))
    promised_jobs = [job for job in jobs if (job.team or job.user) == ask.team.name]
    promised = sum(job.request.gpus for job in promised_jobs)
    if quota is not None and promised > quota and not ask.force:
        named = ", ".join(str(job.job_id) for job in promised_jobs[: policies.LISTED])
        raise IllegalTransition(
            f"{promised} GPUs of team {ask.team.name} are promised to jobs {named}, more than "
            f"{quota}",
            hint="with --force the quota is set all the same: these promises stand, and nothing "
            "more is promised",
            jobs=len(promised_jobs),
        )


def _without_default(state: State, team: Team) -> Iterator[Team]:
    """Other teams that are the default of its members by now."""
    chosen = {one.user for one in team.members if one.default}
    for other in state.people.teams.values():
        if other.name != team.name and any(
            one.default and one.user in chosen for one in other.members
        ):
            members = [
                one._replace(default=one.default and one.user not in chosen)
                for one in other.members
            ]
            yield other._replace(members=tuple(members), version=other.version + 1)


def _facts(team: Team) -> dict[str, Any]:
    facts = {**team.rules._asdict(), "slo_quota": team.slo_quota, "members": len(team.members)}
    return {key: value for key, value in facts.items() if value is not None}


def _notices(state: State, team: Team) -> Iterator[str]:
    """Whom a new quota or limit concerns."""
    if words := no_difference(state):
        yield words
        return
    yield from _beyond(state, f"team {team.name}", team.name, team.rules)
    for member in team.members:
        account = account_of(team.name, member.user)
        yield from _beyond(state, f"{member.user} in team {team.name}", account, member.rules)


def _beyond(state: State, who: str, account: str, rules: TeamRules) -> Iterator[str]:
    held = holders(state.cluster, account, state.policy.quota_unit)
    total, jobs = sum(held.values()), ", ".join(map(str, sorted(held)[: policies.LISTED]))
    holds = f"{who} holds {total:g} GPUs (jobs {jobs})"
    if rules.gpu_quota is not None and total > rules.gpu_quota:
        yield (
            f"{holds}, {total - rules.gpu_quota:g} beyond its quota: "
            "it borrows those from now on, and gives them back when others have a right to them"
        )
    if rules.gpu_limit is not None and total > rules.gpu_limit:
        yield (
            f"{holds}, {total - rules.gpu_limit:g} beyond its limit: "
            "nobody is stopped, and nothing more of it starts until it holds less"
        )
    if wide := _too_wide(state, account, rules.gpu_limit):
        yield (
            f"jobs {wide} of {who} wait and are wider than its limit: they cannot start before "
            "it is raised"
        )
    if rules.running_jobs is not None and len(held) > rules.running_jobs:
        yield (
            f"{who} runs {len(held)} jobs, {len(held) - rules.running_jobs} beyond its limit: "
            "nobody is stopped, and nothing more of it starts until it runs fewer"
        )


def _too_wide(state: State, account: str, limit: int | None) -> str:
    """Jobs that wait for more GPUs than the limit; empty: there are none. O(jobs)."""
    if limit is None:
        return ""
    wide = sorted(
        job.job_id
        for job in state.cluster.jobs.values()
        if job.waiting
        and state.policy.quota_unit.asked(state.cluster, job) > limit
        and account in (job.account, team_of(job.account))
    )
    return ", ".join(map(str, wide[: policies.LISTED]))


def _check_width(who: str, told: TeamRules, counts: float) -> None:
    if told.gpu_limit is not None and counts > told.gpu_limit:
        raise Unsatisfiable(
            f"the job needs {counts:g} GPUs, and {who} may hold {told.gpu_limit} at most",
            hint="ask an admin for more, or for fewer GPUs: dlq teams shows what each may have",
        )
