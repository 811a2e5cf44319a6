"""`dlq update`: change a job that has not ended, in all requested fields or in none."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from dlq_common.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    PermissionDenied,
    Unsatisfiable,
)
from dlq_common.text.instants import format_instant
from dlq_common.text.units import format_duration
from dlq_master.control.deadlines import deadline_updates
from dlq_master.control.jobs import dependencies, elastic, submitting
from dlq_master.control.jobs.gates import ArrayGate, holds_place, over
from dlq_master.control.jobs.groups import NO_DEADLINE, NOT_ELASTIC
from dlq_master.control.jobs.jobs import editable, find, must_live
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.people import queues, teams
from dlq_master.control.people.counts import gpus_of
from dlq_master.control.placement import cores, scheduling
from dlq_master.control.stimuli import (
    SAME,
    FieldChange,
    Respec,
    UpdatedJob,
    UpdateJob,
    UpdateNote,
)
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import arrays
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.eligible import Array, Block
from dlq_master.model.jobs.job import HoldKind, Job
from dlq_master.model.jobs.naming import shown_dependency, shown_id
from dlq_master.model.resources import Request

# The fields with the verdict on deadlines.
_OF_DEADLINES = ("promised", "slots", "verdict", "alternative", "margin", "pause", "band")
# Fields that cannot change while the job runs.
_BEFORE_IT_RUNS = ("queue", "begin_time_s", "depends", "team")


def _known(turn: Turn, ask: UpdateJob, word: str) -> Answer:
    find(turn, ask.caller, ask.job_id)
    kept = json.loads(word)
    told, noted = (kept["changes"], kept["notes"]) if isinstance(kept, dict) else (kept, ())
    changes = tuple(FieldChange(*change) for change in told)
    notes = tuple(UpdateNote(*note) for note in noted)
    return lambda: UpdatedJob(turn.job(ask.job_id), changes, notes)


@once(_known)
def update(turn: Turn, ask: UpdateJob) -> Answer | Done[Answer]:
    """Change a job. If one of the changes is refused, none is made."""
    job = editable(turn, ask)
    must_live(job, "changed")
    if ask.hooked is not None and ask.hooked.seen_version != job.version:
        raise Conflict(f"job {shown_id(job)} has changed", version=job.version)
    after = _wanted(turn, ask, job)
    if job.group is not None:
        _check_member(after)
    told = ask.respec.changes if ask.respec is not None else ()
    changes = (*_changes(turn, job, after), *told)
    promised = deadline_updates.decided(turn, job, after)
    notes = () if ask.hooked is None else ask.hooked.notes
    if ask.validate_only:
        return lambda: UpdatedJob(turn.job(ask.job_id), changes, notes)
    if changes:
        if after.queue == turn.state.config.interactive.queue:
            # Another change of the same turn counts it.
            turn.entered[gpus_of(job.user)] += max(0, _more_gpus(job, after))
        _apply(turn, ask, job, deadline_updates.cleared(job, after), changes)
        deadline_updates.promise(turn, job, promised, ask.caller.actor)
    word = {"changes": changes, "notes": notes} if notes else changes
    return Done(lambda: UpdatedJob(turn.job(ask.job_id), changes, notes), json.dumps(word))


# --- what is wished, and whether it may be --------------------------------------------------------


def _wanted(turn: Turn, ask: UpdateJob, job: Job) -> Job:
    if job.live_key is not None:
        for field in _BEFORE_IT_RUNS:
            if getattr(ask, field) is not SAME:
                name = field.removesuffix("_time_s").replace("depends", "dependency")
                raise IllegalTransition(
                    f"job {shown_id(job)} runs: its {name} cannot be changed any more",
                    hint=f"dlq requeue --hold {shown_id(job)} takes it off its GPUs first",
                    state=job.state.value,
                )
    after = job
    if ask.name is not SAME:
        after = after._replace(name=ask.name)
    if ask.queue is not SAME:
        after = after._replace(queue=submitting.queue_of(turn, ask.queue))
        if after.queue != job.queue:
            submitting.check_guest(turn, job.user, after.queue)
            submitting.check_queue(turn, after.queue, job.user, 1)
    if ask.nice is not SAME:
        submitting.check_nice(ask.caller, ask.nice)
        after = after._replace(nice=ask.nice)
    if ask.time_limit_s is not SAME:
        _check_limit(ask, job, ask.time_limit_s)
        after = after._replace(time_limit_s=ask.time_limit_s)
    if ask.begin_time_s is not SAME:
        after = after._replace(begin_time_s=ask.begin_time_s)
    if ask.depends is not SAME:
        wanted = dependencies.dependency(turn, ask.caller, ask.depends, before=job.job_id)
        after = dependencies.of_task(turn, after._replace(depends=wanted))
    if ask.concurrent is not SAME:
        after = after._replace(array=_limited(job, ask.concurrent))
    after = teams.moved(turn, after, ask.team, ask.caller)
    after = deadline_updates.wanted(turn, ask, job, after)
    after = elastic.wanted(turn, ask, job, after)
    after = _respecified(turn, job, after, ask.respec)
    after = _in_class(turn, ask, job, after)
    base = queues.job_priority(turn.state.config, after.queue, after.nice)
    moved = (after.queue, after.nice) != (job.queue, job.nice)
    return after._replace(priority_base=base) if moved else after


def _check_member(after: Job) -> None:
    """Raises if the update gives a member of a group deadlines or sizes: members start together."""
    for wish, field, (why, hint) in (
        (after.steps, "deadlines", NO_DEADLINE),
        (after.request.sizes, "elastic", NOT_ELASTIC),
    ):
        if wish:
            raise InvalidRequest(f"a member of a group {why}", field=field, hint=hint)


def _in_class(turn: Turn, ask: UpdateJob, job: Job, after: Job) -> Job:
    """Raises beyond the limits of interactive jobs. Operators may exceed the time limit."""
    limit_s = queues.wall_limit_s(turn.state.config, after.queue, after.time_limit_s)
    time_s = None if ask.caller.sees_all or limit_s == job.time_limit_s else limit_s
    width, more = after.request.most_gpus, _more_gpus(job, after)
    if after.queue != job.queue or time_s is not None or more > 0:
        wish = queues.ClassWish(width, max(0, more), time_s)
        queues.check_class(turn, after.queue, job.user, wish)
    return after if limit_s == after.time_limit_s else after._replace(time_limit_s=limit_s)


def _more_gpus(job: Job, after: Job) -> int:
    """The additional GPUs of its user in its queue."""
    return after.request.most_gpus - (job.request.most_gpus if after.queue == job.queue else 0)


def _respecified(turn: Turn, job: Job, after: Job, wish: Respec | None) -> Job:
    """With another spec. It was made from the spec of the job as it was then."""
    if wish is None or not wish.changes:
        return after
    name, shown = wish.changes[0].field, shown_id(job)
    if job.live_key is not None:
        raise IllegalTransition(
            f"job {shown} runs: its {name} cannot be changed any more",
            hint=f"dlq requeue --hold {shown} takes it off its GPUs first",
            state=job.state.value,
        )
    if job.version != wish.seen_version:
        raise Conflict(f"job {shown} has changed", version=job.version)
    nodes = {"constraint": wish.constraint, "among": wish.among, "not_among": wish.not_among}
    request = replace(after.request, **nodes)  # type: ignore[arg-type]  # fields by their names
    if wish.sized is not None:
        request = _resized(turn, request, wish.sized)
        teams.check_limits(turn, after.team, job.user, request, 0)
    if request != after.request:
        if job.steps:
            raise IllegalTransition(
                f"job {shown} is promised a deadline on the nodes that it asked for",
                state=job.state.value,
            )
        if scheduling.never(turn, request) is not None:
            raise Unsatisfiable("no set of the cluster's nodes could ever hold this job then")
    rules = after.rules._replace(once=wish.once)
    return after._replace(own_spec=True, request=request, rules=rules)


def _resized(turn: Turn, request: Request, sized: Request) -> Request:
    """On another number of nodes, as if it had been submitted so."""
    fresh = cores.fitted(turn, sized)
    return replace(
        request,
        nodes=fresh.nodes,
        gpus=fresh.gpus,
        cpus_per_node=fresh.cpus_per_node,
        core_memory_bytes=fresh.core_memory_bytes,
    )


def _check_limit(ask: UpdateJob, job: Job, limit_s: float | None) -> None:
    """As in Slurm: a running job got its GPUs for the earlier request."""
    if job.live_key is None or ask.caller.sees_all:
        return
    longer = limit_s is None or (job.time_limit_s is not None and limit_s > job.time_limit_s)
    if longer and limit_s != job.time_limit_s:
        raise PermissionDenied(
            f"job {shown_id(job)} runs: only operators lengthen its time limit",
            user=ask.caller.name,
        )


def _limited(job: Job, concurrent: int) -> Array:
    if job.array is None:
        raise InvalidRequest(
            f"job {shown_id(job)} is not a task of an array", field="concurrent_count"
        )
    if job.array.members:
        raise InvalidRequest(
            "the members of a group all run at a time, or none does", field="concurrent_count"
        )
    limit = concurrent if concurrent < job.array.tasks else 0
    return job.array._replace(concurrent=limit)


def _changes(turn: Turn, job: Job, after: Job) -> Iterator[FieldChange]:
    for field, text in _TEXTS.items():
        if getattr(job, field) != getattr(after, field):
            name = _NAMES.get(field, field).removesuffix("_time_s").removesuffix("_s")
            before, now = text(turn, job), text(turn, after)
            if before != now or field not in _OF_SPECS:
                yield FieldChange(name, before, now)


_NAMES = {
    "array": "concurrent",
    "depends": "dependency",
    "steps": "deadline",
    "rules": "on_miss",
    "request": "elastic",
}
_OF_SPECS = ("request", "rules")  # parts of them are told by the change of the spec
_TEXTS: Mapping[str, Callable[[Turn, Job], str]] = {
    "name": lambda _, job: job.name,
    "queue": lambda _, job: job.queue,
    "team": lambda _, job: job.team or "none",
    "nice": lambda _, job: str(job.nice),
    "time_limit_s": lambda _, job: (
        "unlimited" if job.time_limit_s is None else format_duration(job.time_limit_s)
    ),
    "begin_time_s": lambda _, job: (
        "none" if job.begin_time_s is None else format_instant(job.begin_time_s)
    ),
    "depends": lambda turn, job: (
        "none" if job.depends is None else shown_dependency(job.depends, turn.known_job)
    ),
    "steps": lambda _, job: deadline_updates.told(job),
    "rules": lambda _, job: deadline_updates.told_on_miss(job),
    "request": lambda _, job: elastic.told(job),
    "array": lambda _, job: str(job.array.concurrent or "all") if job.array is not None else "",
}


# --- carrying it out ------------------------------------------------------------------------------


def _apply(
    turn: Turn, ask: UpdateJob, job: Job, after: Job, changes: tuple[FieldChange, ...]
) -> None:
    if after.array != job.array and after.array is not None:
        _limit_array(turn, ask, after.array)
        after = after._replace(array=job.array)
    if ask.respec is not None and ask.respec.changes:
        turn.batch.changed_specs.append((job.job_id, ask.respec.spec))
    values = tuple(
        (field, getattr(after, field))
        for field in (*_TEXTS, "priority_base", "speeds", "own_spec", *_OF_DEADLINES)
        if getattr(after, field) != getattr(job, field)
    )
    if not values and not (ask.respec is not None and ask.respec.changes):
        return
    gates = turn.state.jobs.gates
    gates.untrack(job)
    gates.leave_namesakes(job)
    told = "; ".join(f"{each.field}: {each.before} -> {each.after}" for each in changes)
    if ask.hooked is not None and ask.hooked.words:
        told += f"; hook {ask.hooked.words}"
    updated = on_job.Updated(values=(*values, *_provisional(after)), changes=told)
    turn.step_job(job.job_id, updated, actor=ask.caller.actor)
    if job.hold is HoldKind.DEPENDENCY and after.depends != job.depends:
        turn.step_job(job.job_id, on_job.Released(), actor=ask.caller.actor)
    gates.track(turn.state.cluster.jobs, turn.job(job.job_id), turn.now_s)
    gates.stirred[job.job_id] = None


def _provisional(after: Job) -> tuple[tuple[str, object], ...]:
    """Block a job until `eligible.settle` judges it in this turn."""
    if after.live_attempt is not None or after.blocked is not None:
        return ()
    if after.depends is None and after.begin_time_s is None:
        return ()
    return (("blocked", Block.BEGIN_TIME), ("queued_since_s", None))


def _limit_array(turn: Turn, ask: UpdateJob, array: Array) -> None:
    """Change the limit of an array: running tasks go on, the others wait for a place again."""
    state = turn.state
    living = [job for job in arrays.tasks(state.cluster.jobs.get, array) if not over(job)]
    tasks = [job for job in living if not job.ended]
    told = f"concurrent: {array.concurrent or 'all'}"
    for task in tasks:
        if task.array != array:
            updated = on_job.Updated(values=(("array", array),), changes=told)
            turn.step_job(task.job_id, updated, actor=ask.caller.actor)
    state.jobs.gates.arrays.pop(array.array_id, None)
    if array.concurrent:
        gate = state.jobs.gates.arrays[array.array_id] = ArrayGate(array.concurrent)
        gate.inside.update(_first_inside(living, array.concurrent))
    state.jobs.gates.stirred.update((task.job_id, None) for task in tasks)


def _first_inside(tasks: list[Job], limit: int) -> Iterator[JobId]:
    running = [task.job_id for task in tasks if task.live_attempt is not None]
    yield from running
    waiting = [
        task.job_id
        for task in tasks
        if task.live_attempt is None and task.blocked is None and holds_place(task)
    ]
    yield from waiting[: max(0, limit - len(running))]
