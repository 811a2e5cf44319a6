"""Accepting jobs: one, many, or all tasks of an array, in one turn and so in one commit."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from dlq_common.errors import (
    AlreadyExists,
    DlqError,
    InvalidRequest,
    PermissionDenied,
    TryAgain,
    Unsatisfiable,
)
from dlq_common.text.instants import format_instant
from dlq_common.text.names import GUEST_MARK
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import format_duration
from dlq_master.control.config import JobsConfig
from dlq_master.control.deadlines import deadline_updates
from dlq_master.control.jobs import dependencies, elastic, eligible
from dlq_master.control.jobs.submit_rates import TOKEN_BYTES, tokens_of
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import WITHDRAWN, Answer, Turn
from dlq_master.control.machines import renting
from dlq_master.control.people import counts, queues, teams
from dlq_master.control.people.queues import MOST_NICE, ClassWish
from dlq_master.control.placement import cores, gpu_types, scheduling
from dlq_master.control.placement.execution import look
from dlq_master.control.reservations import reservations
from dlq_master.control.stimuli import (
    AskedArray,
    AskedLateness,
    Caller,
    SubmitJob,
    SubmitMany,
    Submitted,
    WithdrawSubmission,
)
from dlq_master.model.estimates.estimate import DECLARED, NOTHING_KNOWN, Basis, Unmeasured
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import HoldKind, Job, Lateness, RunRules
from dlq_master.model.jobs.job_changes import changed
from dlq_master.model.values import Alike
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.admit.submission import refused
from dlq_master.policy.partition.quota_units import QuotaUnit

# Values that jobs of one kind share. The store shares them likewise when it reads jobs.
_RULES: Alike[RunRules] = Alike()
_WORDS: Alike[str] = Alike()


def _known(turn: Turn, ask: SubmitJob, word: str) -> Answer:
    return _submitted(turn, ask, JobId(int(word)))


@once(_known)
def submit(turn: Turn, ask: SubmitJob) -> Answer | Done[Answer]:
    """Accept a job, or all tasks of an array (the answer is the first task). A repeat gets the same
    answer.
    """
    team = teams.team_for(turn.state, ask.caller.name, ask.team, ask.caller.given_teams)
    if not ask.check:  # limits of users and queues do not apply to checks of nodes
        check_room(turn, ask, team, _count(ask))
        check_rate(turn, ask.caller, tokens_of(_count(ask), ask.spec))
    job = judged(turn, ask, team)
    if ask.validate_only:
        return lambda: Submitted(job, ())
    if not ask.hold:
        _check_trials(turn, job, _count(ask))
    accepted = [job] if job.array is None or ask.array is None else _tasks(job, ask.array)
    if job.depends is not None:
        accepted = [dependencies.of_task(turn, one) for one in accepted]
    if not ask.check:
        accepted = after_checks(turn, accepted, job.request.real_gpus)
    take_in(turn, ask, accepted)
    return Done(_submitted(turn, ask, job.job_id), job.job_id)


def judged(turn: Turn, ask: SubmitJob, team: str) -> Job:
    """The job, or the first task, with the next free id. Raises if no node could ever hold it."""
    check_nice(ask.caller, ask.nice)
    job = _job(turn, ask, team)
    if ask.sized:
        job = renting.sized(turn, job)
    never = scheduling.never(turn, job.request)
    if never is not None and not renting.could_hold(turn, job):
        raise Unsatisfiable(
            "no set of the cluster's nodes could ever hold this job",
            reasons=(sentence(never, job) + _nearest_type(turn, never, job),),
            hint="see what there is: dlq nodes",
        )
    gpu_types.check_known(turn, job.request)
    if not ask.sized:
        elastic.check_room(turn, job.request)
    return job


def submit_many(turn: Turn, ask: SubmitMany) -> Answer:
    """Accept or refuse each as if it came alone; equal ones are checked once."""
    turn.recall(ask.asks)
    answers: list[JobId | DlqError] = []
    for _, group in groupby(ask.asks, _terms_of):
        answers += _submit_alike(turn, [*group])
    return lambda: tuple(answers)


def withdraw(turn: Turn, ask: WithdrawSubmission) -> JobId | None:
    """The job of an accepted submission. Without one, mark the request id as withdrawn: if the
    submission arrives later, it is refused.
    """
    known = turn.known_request(ask)
    if known is None:
        turn.remember(ask, WITHDRAWN)
    elif known.result.isdecimal():
        return JobId(int(known.result))
    elif known.result != WITHDRAWN:
        raise AlreadyExists(
            f"request id {ask.request_id} was used for no submission", kind="request_id"
        )
    return None


# --- helpers, in order of use ---------------------------------------------------------------------


_PROGRAM = {"request_id", "digest", "name", "spec", "family"}
_terms_of = attrgetter(*(field.name for field in fields(SubmitJob) if field.name not in _PROGRAM))


def _submit_alike(turn: Turn, asks: Sequence[SubmitJob]) -> list[JobId | DlqError]:
    """Answer submissions that differ only in their programs.

    If all are new, the first is accepted, and there is room for the others, these are not checked.
    """
    first, *others = asks
    likeable = bool(others) and _is_likeable(turn, first) and _are_new(turn, asks)
    answer = _alone(turn, first)
    if likeable and not isinstance(answer, DlqError):
        job = turn.state.cluster.jobs[answer]
        if _have_room(turn, first, job.team, others):
            return [answer, *(_like(turn, job, one) for one in others)]
    return [answer, *(_alone(turn, one) for one in others)]


def _is_likeable(turn: Turn, ask: SubmitJob) -> bool:
    """Whether only limits and rates could refuse another submission like this accepted one."""
    special = ask.array or ask.depends or ask.hold or ask.sized or ask.validate_only
    reserved = turn.state.reservations.by_id or turn.state.config.checks.wide_gpus
    return not (special or reserved or _limits_trials(turn))


def _are_new(turn: Turn, asks: Sequence[SubmitJob]) -> bool:
    try:
        return turn.replay(asks[0]) is None and not any(map(turn.known_request, asks[1:]))
    except DlqError:
        return False


def _alone(turn: Turn, ask: SubmitJob) -> JobId | DlqError:
    try:
        job: Job = submit(turn, ask)().job
    except DlqError as refusal:
        return refusal
    return job.job_id if job.array is None else job.array.array_id


def _have_room(turn: Turn, ask: SubmitJob, team: str, others: Sequence[SubmitJob]) -> bool:
    """Whether limits and rates allow these others; if so they are counted."""
    try:
        check_room(turn, ask, team, len(others))
        check_rate(turn, ask.caller, sum(tokens_of(1, other.spec) for other in others))
    except DlqError:
        return False
    return True


def _like(turn: Turn, first: Job, ask: SubmitJob) -> JobId:
    """Accept a copy of the first job with another program."""
    job_id = JobId(turn.state.jobs.next_id)
    own = {"job_id": job_id, "name": ask.name, "family": _family(ask)}
    job = changed(first, {**own, "sequence": 0, "profile": None})
    take_in(turn, ask, [turn.state.trials.with_traffic(job)])
    turn.remember(ask, job_id)
    return job_id


def _limits_trials(turn: Turn) -> bool:
    """Whether submissions of trials are limited, which depends on each job's family."""
    rules = turn.state.policy.profiling
    return rules is not None and rules.submit_gpus is not None


def _check_trials(turn: Turn, job: Job, count: int) -> None:
    """Limit the GPUs that one user may send to trials within the time of a trial (Chronus, 3.2.1).

    Raises TryAgain beyond it, with the time to come again. Nothing is stored: after a restart of
    the master the loaded jobs count as before.
    """
    rules = turn.state.policy.profiling
    if rules is None or rules.submit_gpus is None or job.blocked is not None:
        return  # a blocked job is checked when its block ends
    held = refused(look(turn), rules, job, count)
    if held is None:
        return
    wait_s = max(1, math.ceil(held.opens_s - turn.now_s))
    within = format_duration(rules.profile_s)
    raise TryAgain(
        f"{job.user} has sent jobs of {held.sent_gpus} GPUs to be profiled in the last {within}, "
        f"and may send {rules.submit_gpus}",
        hint=f"nothing was submitted; try again in {wait_s} s. A job that says how long it runs "
        "(--work) "
        "is not profiled",
        retry_after_s=wait_s,
        limit="submit_gpus",
    )


def _submitted(turn: Turn, ask: SubmitJob, job_id: JobId) -> Answer:
    if ask.brief:
        return lambda: Submitted(turn.job(job_id), ())
    return lambda: Submitted(
        turn.job(job_id), scheduling.at_a_glance(turn, job_id), scheduling.place(turn, job_id)
    )


def take_in(turn: Turn, ask: SubmitJob, accepted: Sequence[Job]) -> None:
    """Enter a checked job, or all tasks of an array, into the cluster."""
    first = accepted[0]
    for one in accepted:
        _enter(turn, ask, one)
    if ask.hooked:
        turn.note("job_hooked", job_id=first.job_id, actor="hook:on_submit", notes=ask.hooked)
    for place in counts.places(first):
        turn.entered[place] += len(accepted)
    if first.queue == turn.state.config.interactive.queue:
        turn.entered[counts.gpus_of(first.user)] += first.request.most_gpus * len(accepted)
    turn.state.jobs.next_id = accepted[-1].job_id + 1
    turn.batch.specs.append((first.job_id, ask.spec))
    turn.plan_due = True


def after_checks(turn: Turn, jobs: Sequence[Job], gpus: int) -> list[Job]:
    """The same jobs. Those of many `gpus` (a wide start) first wait a bounded time for checks of
    idle nodes (checks/wide.py).

    The bound is stored as their begin time, so it also holds after a restart of the master.
    """
    config, wide = turn.state.config.checks, turn.state.nodes.checks.wide
    if not config.wide_gpus or gpus < config.wide_gpus:
        return [*jobs]
    until_s = turn.now_s + config.wide_wait
    waiting = []
    for job in jobs:
        if job.begin_time_s is None:
            wide[job.job_id] = until_s
            job = job._replace(begin_time_s=until_s)
            job = job._replace(blocked=eligible.first_block(job))
        waiting.append(job)
    return waiting


def check_room(turn: Turn, ask: SubmitJob, team: str, asked: int, gpus: int | None = None) -> None:
    """Raises if limits of user, team or queue forbid `asked` more jobs like this. `gpus`: of all of
    them, if they differ.
    """
    user = ask.caller.name
    config = turn.state.config
    queue = queue_of(turn, ask.queue)
    check_guest(turn, user, queue)
    teams.check_count(turn, user, counts.of_user(user), config.jobs.queued_per_user, asked)
    request = ask.request
    if turn.state.policy.quota_unit is QuotaUnit.NORMALISED:
        request = gpu_types.resolved(turn.state.cluster, request)
    teams.check_limits(turn, team, user, request, asked)
    check_queue(turn, queue, user, asked)
    queues.check_class(turn, queue, user, _class_wish(ask, asked, gpus))
    if turn.state.disk_full:
        raise TryAgain("the master's disk is nearly full; ends and cancels are still taken")


def _class_wish(ask: SubmitJob, asked: int, gpus: int | None = None) -> ClassWish:
    width = ask.request.most_gpus
    return ClassWish(width, width * asked if gpus is None else gpus, ask.time_limit_s)


def check_rate(turn: Turn, caller: Caller, tokens: int) -> None:
    """Raises TryAgain for a caller that submits too fast. Repeats were answered before."""
    wait_s = turn.state.jobs.submit_rates.take(caller.name, tokens, turn.now_s)
    if wait_s > 0.0:
        rate = turn.state.config.jobs.submit_rate
        raise TryAgain(
            f"{caller.name} submits too fast: in the long run {rate:g} jobs a second are taken, "
            f"and {TOKEN_BYTES // 1024} KiB of a spec count as one",
            hint=f"nothing was submitted; try again in {math.ceil(wait_s)} s",
            retry_after_s=math.ceil(wait_s),
            limit="submit_rate",
        )


def _count(ask: SubmitJob) -> int:
    return 1 if ask.array is None else len(ask.array.indexes)


def check_nice(caller: Caller, nice: int) -> None:
    """Users may put their own jobs behind those of others, operators also before them."""
    if abs(nice) > MOST_NICE:
        raise InvalidRequest(f"nice goes from -{MOST_NICE} to {MOST_NICE}", field="spec.nice")
    if nice < 0 and not caller.sees_all:
        raise PermissionDenied("a nice below 0 is for operators", user=caller.name)


def check_guest(turn: Turn, user: str, queue: str) -> None:
    """Raises if a guest of another organisation may have no job in this queue now."""
    if GUEST_MARK in user:
        from dlq_master.control.people import grants  # most masters have none

        grants.check_submission(turn, user, queue)


def check_queue(turn: Turn, queue: str, user: str, asked: int) -> None:
    """Raises QuotaExceeded if so many more jobs are more than the queue takes, of all or of this
    user.
    """
    limits = next(one for one in turn.state.config.queues if one.name == queue)
    place, own = counts.of_queue(queue), counts.of_queue(queue, user)
    teams.check_count(turn, f"queue {queue}", place, limits.jobs, asked)
    teams.check_count(turn, f"{user} in queue {queue}", own, limits.jobs_per_user, asked)


def _job(turn: Turn, ask: SubmitJob, team: str) -> Job:
    """The job, or the first task."""
    state = turn.state
    queue = queue_of(turn, ask.queue)
    next_id = JobId(0 if ask.validate_only else state.jobs.next_id)
    array = None if ask.array is None else _array(ask.array, next_id)
    job = Job(
        job_id=next_id if array is None or ask.validate_only else JobId(next_id + 1),
        user=ask.caller.name,
        person=ask.caller.key,
        name=_WORDS.one(ask.name),
        request=cores.fitted(turn, gpu_types.resolved(state.cluster, ask.request)),
        submit_time_s=turn.now_s,
        queue=_WORDS.one(queue),
        priority_base=queues.job_priority(state.config, queue, ask.nice),
        nice=ask.nice,
        time_limit_s=queues.wall_limit_s(state.config, queue, ask.time_limit_s),
        duration_estimate_s=ask.run_estimate_s,
        basis=_basis(ask),
        steps=deadline_updates.steps_of(turn, ask.deadlines, turn.now_s, field="spec.deadlines"),
        step_count=ask.step_count,
        rules=_RULES.one(_with_graces(ask, state.config.jobs)),
        begin_time_s=ask.begin_time_s,
        depends=dependencies.dependency(turn, ask.caller, ask.depends),
        array=array,
        array_index=0 if array is None else array.first,
        family=_family(ask),
        program=_WORDS.one(ask.program),
        records=ask.records,
        team=team,
        lateness=lateness_of(turn, ask.lateness),
        check=ask.check,
    )
    job = _off_reserved(turn, state.trials.with_traffic(job))
    block = eligible.first_block(job)
    return job if block is None else job._replace(blocked=block)


def _family(ask: SubmitJob) -> str:
    return _WORDS.one(f"{ask.caller.key}/{ask.family}") if ask.family else ""


def _off_reserved(turn: Turn, job: Job) -> Job:
    """It may be placed in the turn in which it comes."""
    avoid = reservations.kept_off(turn.state, job, turn.now_s).off
    return job._replace(request=replace(job.request, avoid=avoid)) if avoid else job


def _basis(ask: SubmitJob) -> Basis:
    """A job that its client ends, or feeds, is never sent to be measured."""
    if ask.run_estimate_s is not None:
        return DECLARED
    return Basis(unmeasured=Unmeasured.INTERACTIVE) if ask.interactive else NOTHING_KNOWN


def lateness_of(turn: Turn, asked: AskedLateness | None) -> Lateness | None:
    """When it is due, as an instant. InvalidRequest if that has passed, since the cost of being
    late would grow from before there was a job.
    """
    if asked is None:
        return None
    due_s = turn.now_s + asked.after_s if asked.at_s is None else asked.at_s
    if due_s <= turn.now_s:
        what = f"the due date is in the past: {format_instant(due_s)}"
        raise InvalidRequest(what, field="spec.lateness.due_time", hint=deadline_updates.TO_COME)
    return Lateness(due_s, asked.weight)


def queue_of(turn: Turn, name: str) -> str:
    """The queue of that name, "" = the default one. InvalidRequest when there is none."""
    config = turn.state.config
    known = [queue.name for queue in config.queues]
    wanted = name or config.jobs.default_queue
    if wanted not in known:
        raise InvalidRequest(
            f"there is no queue {wanted!r}{did_you_mean(wanted, known)}", field="spec.queue"
        )
    return wanted


def _array(asked: AskedArray, array_id: JobId) -> Array:
    count = len(asked.indexes)
    limited = asked.concurrent if asked.concurrent < count else 0
    return Array(array_id, count, limited, asked.indexes[0], asked.indexes[-1], asked.step)


def _with_graces(ask: SubmitJob, jobs: JobsConfig) -> RunRules:
    """A user's grace stands until saves have been seen, and no learned one is cut below it."""
    asked_s = ask.grace_s
    return ask.rules._replace(
        first_grace_s=float(jobs.first_grace) if asked_s is None else asked_s,
        grace_floor_s=float(jobs.grace_floor),
        grace_cap_s=max(float(jobs.grace_cap), asked_s or 0.0),
        retry_backoff_s=float(jobs.retry_backoff),
        forgive_after_s=float(jobs.forgive_after),
        limits=jobs.limited(ask.rules.limits) if jobs.restart_limits else ask.rules.limits,
        kill_wait_s=float(jobs.kill_wait) if ask.ends_as_slurm else None,
    )


def _nearest_type(turn: Turn, never: Reason, job: Job) -> str:
    if never.code is not ReasonCode.GPU_TYPE:
        return ""
    return did_you_mean(job.request.gpu_type or "", gpu_types.known(turn.state.cluster))


def _tasks(first: Job, asked: AskedArray) -> list[Job]:
    """The tasks of an array: copies of the first with other numbers."""
    return [
        first._replace(job_id=JobId(first.job_id + ordinal), array_index=index)
        for ordinal, index in enumerate(asked.indexes)
    ]


def _enter(turn: Turn, ask: SubmitJob, job: Job) -> None:
    state = turn.state
    state.jobs.note_unknown_type(state.cluster, job)
    state.jobs.note_attended(job, turn.now_s)
    state.deadlines.note_cancel_late(job)
    state.cluster.put_job(job)
    state.jobs.gates.track(state.cluster.jobs, job, turn.now_s)
    told = partial(turn.note, "job_submitted", job_id=job.job_id, actor=ask.caller.actor)
    if job.array is None:
        told(name=ask.name)
    else:
        told(name=ask.name, task=f"{job.array.array_id}_{job.array_index}")
    if ask.hold:
        held = on_job.Held(kind=HoldKind.USER, by=ask.caller.name)
        turn.step_job(job.job_id, held, actor=ask.caller.actor)
