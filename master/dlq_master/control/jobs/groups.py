"""Groups: jobs that are accepted together, start together and end together.

A group is an array whose tasks have specs of their own. Plans start all of them or none
(`policy/place/allocation/together.py`), and their ranks wait for each other at one barrier
(`control/attempts/barrier.py`). Here they are accepted, and the consequences of their states
(`model/attempts/groups.py`) are carried out.

The consequences of a step are decided in the same turn, and stand in the same commit. Those of a
plan are decided in the next turn. Nothing is stored beside the jobs: a master that starts looks at
all groups once. While the node of a member is silent the others go on, as the ranks of a gang do,
until its hold is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dlq_common.errors import DlqError, InvalidRequest, Unsatisfiable
from dlq_master.control.jobs import dependencies
from dlq_master.control.jobs.submit_rates import tokens_of
from dlq_master.control.jobs.submitting import (
    after_checks,
    check_rate,
    check_room,
    judged,
    queue_of,
    take_in,
)
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.people import teams
from dlq_master.control.stimuli import AskedMember, SubmitGroup, SubmitJob
from dlq_master.control.stimuli.jobs import SubmittedGroup
from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.attempts.groups import Follows, KnownMember, consequences
from dlq_master.model.estimates.estimate import Basis, Unmeasured
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import arrays
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.eligible import Array, GroupedMember
from dlq_master.model.jobs.job import Job
from dlq_master.model.transitions import StopCause
from dlq_master.policy.place.allocation.room_for_group import could_hold
from dlq_master.policy.place.allocation.together import never

MASTER = "master"
MOST_JOBS = 256  # of a group: each of them is told where all others are

# A promise and a size are one job's.
NO_DEADLINE = (
    "has no deadline: nothing is promised to groups",
    "leave it out; a job of its own, or a gang, may have one",
)
NOT_ELASTIC = (
    "is not elastic",
    "say one number of GPUs; a job of its own may be elastic",
)


def _known(turn: Turn, _ask: SubmitGroup, word: str) -> Answer:
    group_id = JobId(int(word))
    group = arrays.array_of(turn.known_job, group_id)
    jobs = () if group is None else tuple(arrays.tasks(turn.known_job, group))
    return lambda: SubmittedGroup(group_id, jobs)


@once(_known)
def submit_group(turn: Turn, ask: SubmitGroup) -> Answer | Done[Answer]:
    """Accept all jobs of a group, or none of them. A refusal names the member."""
    _check_members(ask.members)
    tokens = sum(tokens_of(member.jobs, member.ask.spec) for member in ask.members)
    check_rate(turn, ask.caller, tokens)
    group_id = JobId(turn.state.jobs.next_id)
    members = tuple(GroupedMember(it.name, it.jobs, it.ends) for it in ask.members)
    count = sum(member.jobs for member in members)
    group = Array(group_id, count, 0, 0, count - 1, 1, members)
    accepted: list[tuple[SubmitJob, Job]] = []
    gpus = Counter[str]()  # by queue
    for member in ask.members:
        job = _judged(turn, member, len(accepted) + member.jobs, gpus)
        for _ in range(member.jobs):
            accepted.append((member.ask, _member(turn, job, group, len(accepted))))
    jobs = [job for _, job in accepted]
    _check_together(turn, jobs)
    if ask.validate_only:
        return lambda: SubmittedGroup(JobId(0), tuple(jobs))
    jobs = after_checks(turn, jobs, sum(job.request.real_gpus for job in jobs))
    for (one, _), job in zip(accepted, jobs, strict=True):
        take_in(turn, one, [job])
    turn.state.jobs.stirred_groups[group_id] = None
    return Done(
        lambda: SubmittedGroup(group_id, tuple(turn.job(job.job_id) for job in jobs)), group_id
    )


def check_size(count: int) -> None:
    """Whether a group may have so many jobs."""
    if not 1 < count <= MOST_JOBS:
        raise InvalidRequest(f"a group has 2 to {MOST_JOBS} jobs, and this one {count}")


@contextmanager
def of_member(name: str) -> Iterator[None]:
    """Refusals meanwhile name the member, and its field."""
    try:
        yield
    except DlqError as refusal:
        refusal.what = f"member {name!r}: {refusal.what}"
        if field := refusal.metadata.get("field"):
            refusal.metadata["field"] = f"members.{name}.{field.removeprefix('spec.')}"
        raise


def moved(turn: Turn, job_ids: Iterable[JobId | None]) -> None:
    """These jobs, or their attempts, have moved: the others of their groups are looked at."""
    jobs, stirred = turn.state.cluster.jobs, turn.state.jobs.stirred_groups
    for job_id in job_ids:
        job = None if job_id is None else jobs.get(job_id)
        if job is not None and job.array is not None and job.array.members:
            stirred[job.array.array_id] = None


def settle(turn: Turn) -> None:
    """Look at all groups in which something has moved, until nothing follows any more."""
    stirred = turn.state.jobs.stirred_groups
    while stirred:
        group_id = next(iter(stirred))
        del stirred[group_id]
        for follows in consequences(_parts(turn, group_id)):
            _carry_out(turn, follows)


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_members(members: Sequence[AskedMember]) -> None:
    check_size(sum(member.jobs for member in members))
    # Variables of the environment know no difference between the two signs.
    names = Counter(member.name.replace("-", "_") for member in members)
    for member in members:
        if names[member.name.replace("-", "_")] > 1:
            what = f"two members are called {member.name!r}"
            raise InvalidRequest(what, field=f"members.{member.name}")


def _judged(turn: Turn, member: AskedMember, count: int, gpus: Counter[str]) -> Job:
    """The job of a member; `count` jobs come with it and before it, with so many GPUs before it."""
    ask = member.ask
    with of_member(member.name):
        _check_alone(ask)
        team = teams.team_for(turn.state, ask.caller.name, ask.team, ask.caller.given_teams)
        queue = queue_of(turn, ask.queue)
        gpus[queue] += ask.request.real_gpus * member.jobs
        check_room(turn, ask, team, count, gpus[queue])
        return judged(turn, ask, team)


def _check_alone(ask: SubmitJob) -> None:
    """Wishes that would concern one member alone."""
    for asked, field, why, hint in (
        (ask.array, "spec.array", "is no array: say how many jobs it has (count)", ""),
        (ask.deadlines, "spec.deadlines", *NO_DEADLINE),
        (ask.lateness, "spec.lateness", "has no due date: no machine is rented for a group", ""),
        (ask.sized, "spec.resources", "says how many GPUs it needs", ""),
        (ask.request.sizes, "spec.elastic", *NOT_ELASTIC),
        (ask.interactive, "spec.interactive", "takes no input of a terminal", ""),
    ):
        if asked:
            raise InvalidRequest(f"a member of a group {why}", field=field, hint=hint)


def _member(turn: Turn, job: Job, group: Array, index: int) -> Job:
    """The job of this index. It is not sent to be measured: it would run alone then."""
    basis = job.basis if job.timed else Basis(unmeasured=Unmeasured.GROUP)
    job = job._replace(
        job_id=JobId(group.array_id + 1 + index), array=group, array_index=index, basis=basis
    )
    return dependencies.of_task(turn, job) if job.depends is not None else job


def _check_together(turn: Turn, jobs: Sequence[Job]) -> None:
    """Unsatisfiable where the cluster, or the limit of a team, could never hold all of them."""
    shapes = [(job.request.gpus, _only_type(job)) for job in jobs if not job.request.without_gpus]
    short = never(turn.state.cluster, shapes) if turn.state.cluster.nodes else None
    if short is not None:
        need, have = short
        raise Unsatisfiable(
            f"the members need {need} GPUs at one time, and there are {have}",
            hint="see what there is: dlq nodes",
        )
    asked = [job.request.shape for job in jobs if not job.request.without_gpus]
    nodes = turn.state.cluster.nodes.values()
    if nodes and could_hold(nodes, asked) is False:
        raise Unsatisfiable(
            "the nodes have enough GPUs, but cannot hold all members at one time",
            hint="see what each node has: dlq nodes; ask for other numbers of nodes or GPUs",
        )
    by_team = Counter[str]()
    for job in jobs:
        by_team[job.team] += job.request.real_base
    for team, gpus in by_team.items():
        first = next(job for job in jobs if job.team == team)
        request = replace(first.request, gpus=gpus, nodes=None)
        teams.check_limits(turn, team, first.user, request, len(jobs))


def _only_type(job: Job) -> str | None:
    kinds = job.request.gpu_types
    return next(iter(kinds)) if kinds is not None and len(kinds) == 1 else None


def _parts(turn: Turn, group_id: JobId) -> list[KnownMember]:
    """The members that memory holds. The consequences of other ends were carried out then."""
    cluster = turn.state.cluster
    first = next(iter(cluster.groups.get(group_id, ())), None)
    group = None if first is None else cluster.jobs[first].group
    if group is None:
        return []
    jobs = arrays.tasks(cluster.jobs.get, group)
    return [KnownMember(job, cluster.live_attempt(job)) for job in jobs]


def _carry_out(turn: Turn, follows: Follows) -> None:
    job = turn.state.cluster.jobs[follows.job.job_id]
    if follows.ends:
        turn.step_job(job.job_id, on_job.Cancelled(), actor=MASTER, cause=follows.why)
        return
    attempt = turn.state.cluster.live_attempt(job)
    if attempt is not None:
        grace_s = stop_grace_s(attempt, job)
        asked = on_attempt.StopRequested(
            cause=StopCause.PREEMPT, grace_s=grace_s, detail=follows.why
        )
        turn.step_attempt(attempt.key, asked, actor=MASTER)
