"""Grants: GPUs that this cluster lends to another organisation, and guests who come under them.

The limits of a grant are those of its team. No user of this cluster is in this team. So one engine
of quotas counts guests and users. While a grant is spent or has ended its team may hold nothing,
and its running jobs save and wait. A revoked grant has no jobs any more.

All of it is rows: a restart of the master changes nothing. The use of a period is counted from the
accounts (`rpc/people/grant_books.py`), after each start and then every half minute. Agents take no
part in it: a guest's job has a lease like any other, so a silent line ends it no later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlq_common.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
)
from dlq_common.text.instants import format_instant
from dlq_common.text.names import GUEST_MARK
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.people import teams
from dlq_master.control.placement import policies
from dlq_master.control.stimuli import (
    AdmitGuest,
    GrantRevoked,
    GrantsUsed,
    KeepGrant,
    MakeGrant,
    RevokeGrant,
    User,
)
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import new_person
from dlq_master.model.transitions import StopCause
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.store.tables.tenants import (
    OPEN_GRANTS,
    GivenGrant,
    GrantState,
    GuestAccount,
    HeldGrant,
    Team,
    TeamRules,
)


def _made(turn: Turn, _ask: MakeGrant, word: str) -> GivenGrant:
    return turn.state.people.grants[word]


@once(_made)
def make(turn: Turn, ask: MakeGrant) -> Done[GivenGrant]:
    """Lend GPUs: a grant and its team come to be. TryAgain while teams cannot change."""
    state, rows = turn.state, turn.state.people.grants
    former = _open_of(state, ask.organisation)
    _check_new(turn, ask, former)
    same = [one for one in rows.values() if one.organisation == ask.organisation]
    earlier = [one for one in same if one.ca == ask.ca]  # another CA is another organisation
    grant = GivenGrant(
        serial=ask.new_serial,
        organisation=ask.organisation,
        ca=ask.ca,
        team=ask.team,
        accounts=ask.accounts,
        limits=ask.limits,
        made_s=turn.now_s,
        until_s=turn.now_s + ask.lifetime_s,
        made_by=ask.caller.name,
        since_day=min((one.since_day for one in earlier), default=int(turn.now_s // DAY_S)),
    )
    _set_team(turn, grant)
    if former is not None:
        turn.put(rows, former._replace(state=GrantState.REPLACED))
    turn.put(rows, grant)
    turn.note(
        "grant_made",
        actor=ask.caller.actor,
        serial=grant.serial,
        organisation=grant.organisation,
        team=grant.team,
        gpus=grant.limits.gpus,
        replaces="" if former is None else former.serial,
    )
    return Done(grant, grant.serial)


def _revoked(turn: Turn, ask: RevokeGrant, word: str) -> GrantRevoked:
    serial, _, cancelled = word.partition("+")
    return GrantRevoked(turn.state.people.grants[serial], int(cancelled))


def _is_known(turn: Turn, _ask: RevokeGrant, word: str) -> bool:
    return word.partition("+")[0] in turn.state.people.grants


@once(_revoked, still=_is_known)
def revoke(turn: Turn, ask: RevokeGrant) -> GrantRevoked | Done[GrantRevoked]:
    """End a grant, and the jobs of its guests. One that was got is forgotten. NotFound: there is no
    such grant.
    """
    people = turn.state.people
    grant = people.grants.get(ask.serial)
    if grant is None:
        held = held_of(people.held_grants.values(), ask.serial)
        turn.drop(people.held_grants, held.serial)
        turn.note("grant_dropped", actor=ask.caller.actor, serial=held.serial)
        return GrantRevoked(held)
    if grant.state not in OPEN_GRANTS:
        return GrantRevoked(grant)
    grant = grant._replace(state=GrantState.REVOKED, reason=ask.reason)
    _set_team(turn, grant)
    turn.put(people.grants, grant)
    ended = list(_jobs(turn, grant))
    for job in ended:
        cause = f"the grant of {grant.organisation} was revoked"
        turn.step_job(job.job_id, on_job.Cancelled(), actor=ask.caller.actor, cause=cause)
    turn.note(
        "grant_revoked",
        actor=ask.caller.actor,
        serial=grant.serial,
        organisation=grant.organisation,
        reason=grant.reason,
        cancelled=len(ended),
    )
    return Done(GrantRevoked(grant, len(ended)), f"{grant.serial}+{len(ended)}")


def admit(turn: Turn, ask: AdmitGuest) -> User:
    """The user that a guest is here; made when they come first. Each introduction is good once.

    Unauthenticated: the introduction was used, or the grant is no good. PermissionDenied: the name
    is another person's by now. QuotaExceeded: all accounts of the grant are taken.
    """
    grant = turn.state.people.grants.get(ask.serial)
    if grant is None:
        raise Unauthenticated(f"there is no grant {ask.serial} here")
    check_open(grant, turn.now_s)
    if turn.known_request(ask) is not None:
        raise Unauthenticated("this introduction was used already", hint="ask for another one")
    users = turn.state.people.users
    name = f"{ask.user}{GUEST_MARK}{grant.organisation}"
    user = users.get(name)
    if user is not None and user.home != ask.home:
        raise PermissionDenied(
            f"{ask.user} is another person at {grant.organisation} by now",
            user=name,
            hint=f"an admin here removes the former one: dlq admin user del {name}",
        )
    if user is None:
        account = _free_account(turn.state, grant)
        user = User(
            name=name,
            role="guest",
            uid=account.uid,
            gid=account.gid,
            groups=account.groups,
            created_time_s=turn.now_s,
            person=new_person(name, turn.state.journal.next_sequence),
            account=account.name,
            grant=grant.serial,
            home=ask.home,
        )
        turn.put(users, user)
        turn.note("guest_admitted", user=name, account=account.name, serial=grant.serial)
    elif user.grant != grant.serial:
        user = replace(user, grant=grant.serial)
        turn.put(users, user)
    turn.remember(ask, name)
    return user


def _kept(turn: Turn, _ask: KeepGrant, word: str) -> HeldGrant:
    return turn.state.people.held_grants[word]


def _is_held(turn: Turn, _ask: KeepGrant, word: str) -> bool:
    return word in turn.state.people.held_grants


@once(_kept, still=_is_held)
def keep(turn: Turn, ask: KeepGrant) -> Done[HeldGrant]:
    """Keep a grant that was got, or a newer statement about it. An older one changes nothing."""
    rows, held = turn.state.people.held_grants, ask.held
    before = rows.get(held.serial)
    twin = [one for one in rows.values() if one.organisation == held.organisation]
    if before is not None and before.ca != held.ca:  # its lender has chosen the serial
        raise AlreadyExists(
            f"{held.serial} is a grant of {before.organisation}", hint="revoke that one first"
        )
    if before is None and any(one.until_s > turn.now_s and one.ca != held.ca for one in twin):
        raise AlreadyExists(
            f"{held.organisation} is the word for another organisation", hint="choose one: --as"
        )
    if before is None:
        for one in twin:  # the newer grant of the same organisation takes its word
            turn.drop(rows, one.serial)
    elif (held.owed_until_s or 0.0) < (before.owed_until_s or 0.0):
        held = held._replace(
            owed_gpu_s=before.owed_gpu_s,
            owed_until_s=before.owed_until_s,
            statement=before.statement,
        )
    turn.put(rows, held)
    kind = "grant_taken" if before is None else "statement_taken"
    turn.note(
        kind,
        actor=ask.caller.actor,
        serial=held.serial,
        organisation=held.organisation,
        gpu_hours=round(held.owed_gpu_s / 3_600.0, 3),
    )
    return Done(held, held.serial)


def look(turn: Turn, ask: GrantsUsed) -> bool:
    """Close what is spent or has ended, and open what has a new period; whether anything was."""
    used, changed = dict(ask.periods), False
    for grant in list(turn.state.people.grants.values()):
        if grant.state not in OPEN_GRANTS:
            continue
        state = _state_now(grant, used.get(grant.serial), turn.now_s)
        if state is grant.state:
            continue
        grant, changed = grant._replace(state=state), True
        _set_team(turn, grant)
        turn.put(turn.state.people.grants, grant)
        turn.note("grant_changed", serial=grant.serial, organisation=grant.organisation, now=state)
        if state is not GrantState.GOOD:
            for job in _jobs(turn, grant):
                if job.live_key is not None and not _is_leaving(turn, job):
                    turn.stop(job.live_key, StopCause.REQUEUE, actor=f"grant:{grant.serial}")
    return changed


def check_submission(turn: Turn, guest: str, queue: str) -> None:
    """Whether this guest may have another job in this queue, by the grant. The limits of its team
    are checked as for everybody.
    """
    user = turn.state.people.users.get(guest)
    grant = None if user is None else turn.state.people.grants.get(user.grant)
    if grant is None:
        raise PermissionDenied(f"{guest} comes under no grant", user=guest)
    check_open(grant, turn.now_s)
    if grant.state is GrantState.SPENT:
        again_s = period_of(grant, turn.now_s)[1] * DAY_S
        raise QuotaExceeded(
            f"the guests of {grant.organisation} have used the {grant.limits.gpu_hours:g} "
            "GPU-hours of this period",
            hint=f"nothing was submitted; the next period begins at {format_instant(again_s)}",
            limit=grant.limits.gpu_hours,
        )
    if queue not in grant.limits.queues:
        raise PermissionDenied(
            f"the grant of {grant.organisation} is not for queue {queue}",
            user=guest,
            hint=f"-p {grant.limits.queues[0]}",
        )
    if words := teams.no_difference(turn.state):
        raise PermissionDenied(f"no guest may submit: {words}", user=guest)


def check_open(grant: GivenGrant, now_s: float) -> None:
    """Unauthenticated unless guests may come under it."""
    if words := grant.refusal(now_s):
        raise Unauthenticated(words, hint="the operators of the two clusters agree on another one")


def period_of(grant: GivenGrant, now_s: float) -> tuple[int, int]:
    """The first day of the present period of a grant, and that of the next one."""
    first, length = int(grant.made_s // DAY_S), grant.limits.period_days
    begin = first + max(0, int(now_s // DAY_S) - first) // length * length
    return begin, begin + length


def held_of(rows: Iterable[HeldGrant], word: str) -> HeldGrant:
    """The grant that was got from the organisation of this word, or else with this serial: that
    its lender has chosen. NotFound.
    """
    known = list(rows)
    for one in known:
        if word == one.organisation:
            return one
    for one in known:
        if word == one.serial:
            return one
    raise NotFound(f"there is no grant {word}", kind="grant", id=word)


# --- helpers, in order of use ---------------------------------------------------------------------


def _open_of(state: State, organisation: str) -> GivenGrant | None:
    """The grant of this organisation that was not ended for good."""
    for grant in state.people.grants.values():
        if grant.organisation == organisation and grant.state in OPEN_GRANTS:
            return grant
    return None


def _check_new(turn: Turn, ask: MakeGrant, former: GivenGrant | None) -> None:
    people, config = turn.state.people, turn.state.config
    if former is not None and not ask.replace:
        raise AlreadyExists(
            f"{ask.organisation} has the grant {former.serial}",
            hint="--replace ends it for this one: guests and jobs go on",
        )
    others = [one for one in people.grants.values() if one.organisation == ask.organisation]
    guests = _guests(turn.state, ask.organisation)
    if guests and any(one.ca != ask.ca for one in others):
        raise AlreadyExists(
            f"{ask.organisation} had another CA, and {len(guests)} of its guests are here",
            hint=f"remove them first (dlq admin user del {guests[0].name}), or choose another word",
        )
    for queue in ask.limits.queues:
        if queue not in [one.name for one in config.queues]:
            raise InvalidRequest(f"there is no queue {queue!r}", field="limits.queues")
    _check_accounts(turn.state, ask, guests)
    own = any(one.team == ask.team for one in others)
    if ask.team in people.users or (ask.team in people.teams and not own):
        raise AlreadyExists(
            f"{ask.team} is a user or a team: the team of a grant is of its guests alone",
            hint="choose another name: --team",
        )
    if former is not None and former.team != ask.team:
        raise InvalidRequest(f"the team of {ask.organisation} is {former.team}", field="team")
    if words := teams.no_difference(turn.state):
        raise InvalidRequest(f"a grant needs limits of teams: {words}")


def _check_accounts(state: State, ask: MakeGrant, guests: list[User]) -> None:
    """An account is of one person at a time."""
    mine = {user.uid for user in guests}
    named = {account.uid for account in ask.accounts}
    taken = {user.uid: user.name for user in state.people.users.values() if user.uid not in mine}
    for grant in state.people.grants.values():
        if grant.organisation != ask.organisation and grant.state in OPEN_GRANTS:
            taken |= {one.uid: f"guests of {grant.organisation}" for one in grant.accounts}
    for account in ask.accounts:
        if account.uid in taken:
            raise AlreadyExists(f"the account {account.name} is of {taken[account.uid]}")
    left = sorted(user.account for user in guests if user.uid not in named)
    if left:
        raise InvalidRequest(
            f"guests of {ask.organisation} have the accounts {', '.join(left)}", field="accounts"
        )


def _guests(state: State, organisation: str) -> list[User]:
    ending = f"{GUEST_MARK}{organisation}"
    return [user for user in state.people.users.values() if user.name.endswith(ending)]


def _set_team(turn: Turn, grant: GivenGrant) -> None:
    """Its team has the limits of the grant, or none of it may hold anything."""
    rows = turn.state.people.teams
    before, limits = rows.get(grant.team), grant.limits
    rules = TeamRules(
        gpu_quota=limits.quota, gpu_limit=limits.gpus, running_jobs=limits.running_jobs
    )
    if grant.state is not GrantState.GOOD:
        rules = TeamRules(gpu_quota=0, gpu_limit=0, running_jobs=0)
    team = Team(
        name=grant.team,
        created_time_s=turn.now_s if before is None else before.created_time_s,
        rules=rules,
        slo_quota=limits.guaranteed if grant.state is GrantState.GOOD else 0,
        version=1 if before is None else before.version + 1,
    )
    policies.retune(turn, rows | {team.name: team})
    turn.put(rows, team)


def _jobs(turn: Turn, grant: GivenGrant) -> list[Job]:
    """All of its guests that have not ended."""
    return [
        job
        for job in turn.state.cluster.jobs.values()
        if job.team == grant.team and not job.ended and GUEST_MARK in job.user
    ]


def _is_leaving(turn: Turn, job: Job) -> bool:
    key = job.live_key
    return key is not None and turn.state.cluster.attempts[key].stop_cause is not None


def _free_account(state: State, grant: GivenGrant) -> GuestAccount:
    taken = {user.uid for user in state.people.users.values()}
    for account in grant.accounts:
        if account.uid not in taken:
            return account
    raise QuotaExceeded(
        f"all {len(grant.accounts)} accounts for guests of {grant.organisation} are taken",
        hint="an admin removes a guest (dlq admin user del), or makes a grant with more accounts",
        limit=len(grant.accounts),
    )


def _state_now(grant: GivenGrant, used_gpu_s: float | None, now_s: float) -> GrantState:
    """`used_gpu_s`: of this period; None: nobody knows, so a spent one stays spent."""
    if now_s >= grant.until_s:
        return GrantState.ENDED
    if grant.limits.gpu_hours is None:
        return GrantState.GOOD
    if used_gpu_s is None:
        return GrantState.GOOD if grant.state is GrantState.ENDED else grant.state
    spent = used_gpu_s >= grant.limits.gpu_hours * 3_600.0
    return GrantState.SPENT if spent else GrantState.GOOD
