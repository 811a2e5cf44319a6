"""Users and join tokens: the identities of the cluster.

Each living job of a user who leaves ends, or gets another owner. No job goes to the next user of
the same name.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

from dlq_common.errors import (
    AlreadyExists,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from dlq_master.control.loop.once import Done, nothing, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.people import notify_rules, revocations, teams
from dlq_master.control.placement import policies
from dlq_master.control.stimuli import (
    CreateToken,
    DeleteUser,
    JoinToken,
    RefreshUser,
    RevokeToken,
    SetUser,
    User,
    UserDeleted,
    UseToken,
)
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import belongs, new_person
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.store.tables.revocations import USER

ROLE_ORDER = ("user", "operator", "admin")
ROLES = (*ROLE_ORDER, "inference", "notifier", "web")


def _token_made(turn: Turn, _ask: CreateToken, word: str) -> JoinToken:
    return _token(turn, word)


@once(_token_made)
def create_token(turn: Turn, ask: CreateToken) -> Done[JoinToken]:
    """Keep the hash of a new token's secret. A repeat returns the same record."""
    token = JoinToken(
        token_id=ask.token_id,
        node_id=ask.node_id,
        secret_hash=ask.secret_hash,
        created_time_s=turn.now_s,
        expire_time_s=turn.now_s + ask.lifetime_s,
        created_by=ask.caller.name,
    )
    turn.put(turn.state.people.tokens, token)
    turn.note("token_created", actor=ask.caller.actor, token_id=token.token_id)
    return Done(token, token.token_id)


@once(nothing)
def revoke_token(turn: Turn, ask: RevokeToken) -> Done[None] | None:
    """Drop a token. An unknown one is gone already."""
    if ask.token_id not in turn.state.people.tokens:
        return None
    turn.drop(turn.state.people.tokens, ask.token_id)
    turn.note("token_revoked", actor=ask.caller.actor, token_id=ask.token_id)
    return Done(None, ask.token_id)


def use_token(turn: Turn, ask: UseToken) -> str:
    """Admit one key with one token; the same key may come again while the token lives."""
    token = turn.state.people.tokens.get(ask.token_id)
    if token is None or not hmac.compare_digest(token.secret_hash, ask.secret_hash):
        raise Unauthenticated("the join token is unknown", hint="make one: dlq admin token create")
    if turn.now_s >= token.expire_time_s:
        raise Unauthenticated("the join token has expired", hint="make one: dlq admin token create")
    if token.used_by_key and token.used_by_key != ask.key_fingerprint:
        raise Unauthenticated("the join token was used by another key")
    if token.node_id and token.node_id != ask.wished_node_id:
        raise PermissionDenied(f"the join token is for node {token.node_id}")
    if not token.used_by_key:
        if not token.node_id and ask.wished_node_id in turn.state.cluster.nodes:
            raise AlreadyExists(
                f"there is a node {ask.wished_node_id}",
                hint=f"bind a token to it: dlq admin token create --node {ask.wished_node_id}",
            )
        turn.put(turn.state.people.tokens, replace(token, used_by_key=ask.key_fingerprint))
        if ask.wished_node_id not in turn.state.cluster.nodes:
            # Known from here on: a certificate is good only while its node is (see
            # rpc/calls/auth.py).
            turn.state.cluster.put_node(
                Node(
                    NodeId(ask.wished_node_id),
                    (),
                    state=NodeState.DOWN,
                    registered_time_s=turn.now_s,
                )
            )
        turn.note("node_joined", node_id=ask.wished_node_id, actor=f"token:{token.token_id}")
    return ask.wished_node_id


def _user_is_there(turn: Turn, ask: SetUser, _word: str) -> bool:
    return ask.name in turn.state.people.users


def _user_as_it_stands(turn: Turn, ask: SetUser, _word: str) -> User:
    return turn.state.people.users[ask.name]


@once(_user_as_it_stands, still=_user_is_there)
def set_user(turn: Turn, ask: SetUser) -> Done[User]:
    """Add or change a user; nobody gives a role above their own, and the last admin stays one."""
    if ask.role not in ROLES:
        raise InvalidRequest(f"no role {ask.role!r}; roles are {', '.join(ROLES)}", field="role")
    before = turn.state.people.users.get(ask.name)
    if before is not None and before.grant:
        raise IllegalTransition(f"{ask.name} is a guest, and has what the grant gives")
    if before is not None and before.role == "admin" and ask.role != "admin":
        _keep_an_admin(turn, ask.name)
    anew = before is None or (before.uid != ask.uid and not ask.same_person)
    if before is not None and anew:
        _refuse_living(turn, before, f"{ask.name} gets another uid, and is somebody else")
    user = User(
        name=ask.name,
        role=ask.role,
        uid=ask.uid,
        gid=ask.gid,
        groups=ask.groups,
        created_time_s=turn.now_s if before is None or anew else before.created_time_s,
        person=before.person
        if before is not None and not anew
        else new_person(ask.name, turn.state.journal.next_sequence),
    )
    twin = next(
        (u for u in turn.state.people.users.values() if u.uid == user.uid and u.name != user.name),
        None,
    )
    if twin is not None:
        raise AlreadyExists(f"user {twin.name} has uid {user.uid} already")
    if before is not None and anew:
        _leave_teams(turn, ask.name)
        notify_rules.leave(turn, ask.name)
    if user != before:
        turn.put(turn.state.people.users, user)
        turn.note("user_set", actor=ask.caller.actor, user=user.name, role=user.role, uid=user.uid)
    return Done(user, user.name)


def refresh_user(turn: Turn, ask: RefreshUser) -> User | None:
    """Store the groups that the account of a user has now; the next start of a job has them."""
    user = turn.state.people.users.get(ask.name)
    if user is None or user.uid != ask.uid:
        return None
    if (user.gid, user.groups) == (ask.gid, ask.groups):
        return user
    groups = ",".join(map(str, ask.groups))
    turn.put(turn.state.people.users, replace(user, gid=ask.gid, groups=ask.groups))
    turn.note("user_groups_changed", user=user.name, gid=ask.gid, groups=groups)
    return turn.state.people.users[ask.name]


def _deleted(_turn: Turn, _ask: DeleteUser, word: str) -> UserDeleted:
    return UserDeleted(*map(int, word.split("+")))


@once(_deleted)
def delete_user(turn: Turn, ask: DeleteUser) -> UserDeleted | Done[UserDeleted]:
    """Remove a user, once none of their jobs lives any more for them; an unknown one is gone
    already.
    """
    if ask.name not in turn.state.people.users:
        return UserDeleted()
    _keep_an_admin(turn, ask.name)
    done = _settle(turn, ask)
    turn.drop(turn.state.people.users, ask.name)
    notify_rules.leave(turn, ask.name)
    revocations.leave(turn, USER, ask.name)
    turn.note(
        "user_deleted",
        actor=ask.caller.actor,
        user=ask.name,
        cancelled=done.cancelled,
        given=done.given,
    )
    return Done(done, f"{done.cancelled}+{done.given}")


def _settle(turn: Turn, ask: DeleteUser) -> UserDeleted:
    """End or hand over the jobs of a user, and take them out of their teams. IllegalTransition, and
    nothing has changed, if a job would be left."""
    user = turn.state.people.users[ask.name]
    jobs = _living(turn, user)
    heir = _heir(turn, ask)
    given = [] if heir is None else _to_give(jobs)
    gone = {job.job_id for job in given}
    ended = [job for job in jobs if job.job_id not in gone]
    if ended and not ask.cancel_jobs:
        raise _refusal(user, f"{user.name} is not removed", ended, heir)
    _leave_teams(turn, user.name)
    for job in given:
        assert heir is not None
        _give(turn, job, heir, ask.caller.actor)
    for job in ended:
        if job.live_key is None or turn.state.cluster.attempts[job.live_key].stop_cause is None:
            turn.step_job(job.job_id, on_job.Cancelled(), actor=ask.caller.actor)
    return UserDeleted(len(ended), len(given))


def _refuse_living(turn: Turn, user: User, what: str) -> None:
    """IllegalTransition while jobs of theirs have not ended."""
    jobs = _living(turn, user)
    if jobs:
        raise IllegalTransition(
            f"{what}: {_counts(jobs)} of the one before",
            hint=f"dlq admin user del {user.name} first; or --same-person, if only the number has "
            "changed",
        )


def _leave_teams(turn: Turn, name: str) -> None:
    """The next one of this name is in no team. Raises TryAgain while teams cannot change."""
    changed = {
        team.name: team._replace(
            members=tuple(one for one in team.members if one.user != name),
            version=team.version + 1,
        )
        for team in turn.state.people.teams.values()
        if team.member(name) is not None
    }
    if changed:
        policies.retune(turn, turn.state.people.teams | changed)
        for team in changed.values():
            turn.put(turn.state.people.teams, team)


# --- helpers, in order of use ---------------------------------------------------------------------


def _living(turn: Turn, user: User) -> list[Job]:
    """All that has not ended, whose it is by the person."""
    return [
        job
        for job in turn.state.cluster.jobs.values()
        if not job.ended and belongs(job, user.name, user.person, user.created_time_s)
    ]


def _heir(turn: Turn, ask: DeleteUser) -> User | None:
    if not ask.give_to:
        return None
    if ask.give_to == ask.name:
        raise InvalidRequest("the jobs of a user who leaves go to somebody else", field="give_to")
    heir = turn.state.people.users.get(ask.give_to)
    if heir is None:
        raise NotFound(f"there is no user {ask.give_to}", kind="user", id=ask.give_to)
    return heir


def _to_give(jobs: list[Job]) -> list[Job]:
    """Running jobs run in the account of the leaving user; a promise counts against the quota of a
    team. The tasks of an array stay together.
    """
    retained = [job for job in jobs if job.live_attempt is not None or job.promised is not None]
    single, arrays = {job.job_id for job in retained}, {job.array for job in retained if job.array}
    return [job for job in jobs if job.job_id not in single and job.array not in arrays]


def _give(turn: Turn, job: Job, heir: User, actor: str) -> None:
    gates = turn.state.jobs.gates
    gates.untrack(job)
    gates.leave_namesakes(job)
    values = (
        ("user", heir.name),
        ("person", heir.key),
        ("team", teams.team_for(turn.state, heir.name, "")),
    )
    changes = f"user: {job.user} -> {heir.name}"
    turn.step_job(job.job_id, on_job.Updated(values=values, changes=changes), actor=actor)
    gates.track(turn.state.cluster.jobs, turn.job(job.job_id), turn.now_s)
    gates.stirred[job.job_id] = None


def _refusal(user: User, what: str, left: list[Job], heir: User | None) -> IllegalTransition:
    if heir is None:
        hint = (
            "end them (--cancel-jobs), or hand those over that do not run: dlq admin user "
            f"del {user.name} --give-to USER"
        )
    else:
        hint = (
            "only what does not run and is promised nothing can be handed over: the rest ends with "
            "--cancel-jobs, or wait until it has ended"
        )
    return IllegalTransition(f"{what}: {_counts(left)} of theirs", hint=hint, jobs=len(left))


def _counts(jobs: list[Job]) -> str:
    running = sum(job.live_attempt is not None for job in jobs)
    waiting = len(jobs) - running
    words = [f"{running} run" if running else "", f"{waiting} wait or are held" if waiting else ""]
    return f"{len(jobs)} jobs live ({', '.join(word for word in words if word)})"


def _keep_an_admin(turn: Turn, name: str) -> None:
    others = (u for u in turn.state.people.users.values() if u.role == "admin" and u.name != name)
    if turn.state.people.users[name].role == "admin" and next(others, None) is None:
        raise IllegalTransition(f"{name} is the last admin")


def _token(turn: Turn, token_id: str) -> JoinToken:
    token = turn.state.people.tokens.get(token_id)
    if token is None:
        raise NotFound(f"the token {token_id} is gone")
    return token


def drop_expired(turn: Turn) -> None:
    """Once an hour: tokens that no longer work are forgotten."""
    for token in list(turn.state.people.tokens.values()):
        if turn.now_s >= token.expire_time_s:
            turn.drop(turn.state.people.tokens, token.token_id)
