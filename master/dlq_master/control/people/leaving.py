"""The living jobs of a user who leaves: each ends, or gets another owner. No job goes to the next
user of the same name.
"""

from __future__ import annotations

from dlq_common.errors import IllegalTransition, InvalidRequest, NotFound
from dlq_master.control.loop.turn import Turn
from dlq_master.control.people import teams
from dlq_master.control.placement import policies
from dlq_master.control.stimuli import DeleteUser, User, UserDeleted
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import belongs


def settle(turn: Turn, ask: DeleteUser) -> UserDeleted:
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
    leave_teams(turn, user.name)
    for job in given:
        assert heir is not None
        _give(turn, job, heir, ask.caller.actor)
    for job in ended:
        if job.live_key is None or turn.state.cluster.attempts[job.live_key].stop_cause is None:
            turn.step_job(job.job_id, on_job.Cancelled(), actor=ask.caller.actor)
    return UserDeleted(len(ended), len(given))


def refuse_living(turn: Turn, user: User, what: str) -> None:
    """IllegalTransition while jobs of theirs have not ended."""
    jobs = _living(turn, user)
    if jobs:
        raise IllegalTransition(
            f"{what}: {_counts(jobs)} of the one before",
            hint=f"dlq admin user del {user.name} first; or --same-person, if only the number has "
            "changed",
        )


def leave_teams(turn: Turn, name: str) -> None:
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
    kept = [job for job in jobs if job.live_attempt is not None or job.promised is not None]
    single, arrays = {job.job_id for job in kept}, {job.array for job in kept if job.array}
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
    told = f"user: {job.user} -> {heir.name}"
    turn.step_job(job.job_id, on_job.Updated(values=values, changes=told), actor=actor)
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
