"""Makes jobs eligible, and blocks them: dependencies, begin times, array limits, back-offs.

`settle` runs in every turn before the plan. So a plan never sees a blocked job, and an end of a job
makes its dependents eligible in the same turn. `gates` keeps the indexes.
"""

from heapq import heappop, heappush

from dlq_master.control.jobs.gates import ArrayGate, holds_place, over
from dlq_master.control.loop.turn import Turn
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.eligible import Block, Dependency
from dlq_master.model.jobs.job import HoldKind, Job, JobState

MASTER = "master"


def settle(turn: Turn) -> None:
    """Judge all jobs that changed, or whose time has come, until no further change follows."""
    gates = turn.state.jobs.gates
    for job_id in gates.begins.due(turn.now_s):
        gates.begins.clear(job_id)
        gates.stirred[job_id] = None
    while gates.stirred:  # the first of a dict is no cheap one: all of them at a time
        stirred = gates.stirred
        gates.stirred = {}
        for job_id in stirred:
            gates.stirred.pop(job_id, None)  # stirred again before its turn: it is judged now
            _settle_job(turn, job_id)


def _settle_job(turn: Turn, job_id: JobId) -> None:
    gates = turn.state.jobs.gates
    job = turn.state.cluster.jobs.get(job_id)
    if job is None:  # it ended and left memory meanwhile
        for other in list(gates.dependents.get(job_id, ())):
            _judge_job(turn, other)
        return
    for other in gates.learn(turn.state.cluster.jobs, job):
        if other != job_id:
            _judge_job(turn, other)
    _judge_job(turn, job_id)


def _judge_job(turn: Turn, job_id: JobId) -> None:
    """Make a job eligible, or block, hold or cancel it."""
    job = turn.state.cluster.jobs[job_id]
    if job.ended:
        turn.state.jobs.gates.untrack(job)
    elif job.live_attempt is None and _may_be_blocked(job):
        _judge(turn, job)
    gate = turn.state.jobs.gates.gate_of(job)
    if gate is not None:
        _fill(turn, gate, job_id)


def _may_be_blocked(job: Job) -> bool:
    """Whether anything beside missing GPUs may keep it from starting."""
    asked = (job.blocked, job.array, job.depends, job.begin_time_s)
    return any(value is not None for value in asked)


def _judge(turn: Turn, job: Job) -> None:
    gates = turn.state.jobs.gates
    depends = job.depends
    if depends is not None and depends.met is None:
        depends = gates.resolved(turn.state.cluster.jobs, job, depends, turn.now_s)
    if depends is not None and depends.met is False:
        _never(turn, job, depends)
        return
    block = _block(turn, job, depends)
    if block in (Block.DEPENDENCY, Block.BEGIN_TIME):
        # It was updated: another task of its array may run instead.
        gates.leave_array(job)
        gates.look_later(job, depends, turn.now_s)
    if block is not job.blocked or depends != job.depends:
        if block is None:
            turn.step_job(job.job_id, on_job.Eligible(depends=depends), actor=MASTER)
            gates.untrack(job)
        else:
            turn.step_job(job.job_id, on_job.Deferred(block=block, depends=depends), actor=MASTER)
    elif block is None:
        gates.untrack(job)


def _block(turn: Turn, job: Job, depends: Dependency | None) -> Block | None:
    if job.blocked is Block.BACKOFF and turn.now_s < (job.retry_time_s or 0.0):
        return Block.BACKOFF
    if depends is not None and depends.met is not True:
        return Block.DEPENDENCY
    if job.begin_time_s is not None and job.begin_time_s > turn.now_s:
        return Block.BEGIN_TIME
    gate = turn.state.jobs.gates.gate_of(job)
    if gate is None or job.job_id in gate.inside:
        return None
    heappush(gate.next, job.job_id)
    return Block.ARRAY_LIMIT


def _never(turn: Turn, job: Job, depends: Dependency) -> None:
    """A dependency can never come true: cancel the job if its user asked for that, else hold it."""
    broken = ",".join(str(term) for term in depends.terms if term.met is False)
    if depends.cancel_if_never:
        cause = f"its dependency can never come true: {broken}"
        turn.step_job(job.job_id, on_job.Cancelled(), actor=MASTER, cause=cause)
        turn.state.jobs.gates.untrack(job)
    elif job.hold is None:
        if depends != job.depends or job.blocked is None:
            deferred = on_job.Deferred(block=Block.DEPENDENCY, depends=depends)
            turn.step_job(job.job_id, deferred, actor=MASTER)
        held = on_job.Held(kind=HoldKind.DEPENDENCY, reason=broken)
        turn.step_job(job.job_id, held, actor=MASTER, cause=broken)


def _fill(turn: Turn, gate: ArrayGate, job_id: JobId) -> None:
    """After a change of a task: fill the free places of its array, the lowest tasks first."""
    jobs = turn.state.cluster.jobs
    task = jobs[job_id]
    if job_id in gate.inside and not holds_place(task):
        gate.inside.discard(job_id)
        if not over(task) and task.blocked is None:
            # It is held: after its release it waits for a place again.
            deferred = on_job.Deferred(block=Block.ARRAY_LIMIT, depends=task.depends)
            turn.step_job(job_id, deferred, actor=MASTER)
    while gate.next and len(gate.inside) < gate.limit:
        job = jobs.get(heappop(gate.next))
        if job is None or job.blocked is not Block.ARRAY_LIMIT or job.state is JobState.HELD:
            continue
        gate.inside.add(job.job_id)
        turn.step_job(job.job_id, on_job.Eligible(depends=job.depends), actor=MASTER)


def first_block(job: Job) -> Block | None:
    """The first block of a new job. `settle` judges it in the same turn."""
    if job.depends is not None:
        return Block.DEPENDENCY
    if job.begin_time_s is not None:
        return Block.BEGIN_TIME
    return Block.ARRAY_LIMIT if job.array is not None and job.array.concurrent else None
