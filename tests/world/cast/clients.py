"""People and programs that call the master, ask again when no answer comes, and remember all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.v1 import job_pb2
from dlq_common.errors import AlreadyExists, DlqError, Unavailable
from dlq_master.control.loop.loop import Loop
from dlq_master.control.stimuli import (
    AskedArray,
    AskedDeadline,
    AskedDependency,
    AskedMember,
    AskedTerm,
    Caller,
    CancelJob,
    HoldJob,
    ReleaseJob,
    RequeueJob,
    SetNodeFlags,
    Stimulus,
    SubmitGroup,
    SubmitJob,
    UpdatedJob,
    UpdateJob,
)
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.eligible import MemberEnds, Relation
from dlq_master.model.jobs.job import Job, RunRules
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Request
from world.judging.history import Operation
from world.stage.acts import Facts
from world.stage.virtual_loop import CURRENT

if TYPE_CHECKING:
    from world.cast.masters import Master
    from world.cast.world import World

ASK = Callable[[Loop], Awaitable[Any]]
TIMEOUT_S = 10.0
GRACE_S = 15.0
DELAYS_S = (0.001, 0.003, 0.02, 0.3)
NO_FLAGS: frozenset[NodeFlag] = frozenset()


class Answer(NamedTuple):
    """What came back: a value, or a refusal; and how often it was asked."""

    value: Any
    refusal: DlqError | None = None
    tries: int = 1


class Client:
    """One program of one user. Its request ids are those of other users' programs too."""

    def __init__(self, world: World, name: str, caller: Caller) -> None:
        self._world = world
        self.name = name
        self.caller = caller
        self._draws = world.tape.stream(f"client {name}")
        self._numbers = 0
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def busy(self) -> bool:
        """Some answer is still waited for."""
        return any(not task.done() for task in self._tasks)

    def do(self, what: str, facts: Facts) -> None:
        """Begin to ask."""
        act: Callable[[Facts], Coroutine[Any, Any, None]] = getattr(self, f"_{what}")
        task = self._world.loop.create_task(act(facts))
        task.add_done_callback(self._done)
        self._tasks.append(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._world.judge.broken(f"client {self.name} failed: {error!r}")

    # --- what it asks for -----------------------------------------------------------------------

    async def _submit(self, facts: Facts) -> None:
        world, label = self._world, facts["job"]
        request_id = self._request_id()
        stimulus = self._submission(facts, request_id)
        operation = Operation("submit", None, world.tick())
        world.judge.submitting(self.caller.name, request_id, label)
        answer = await self._ask(stimulus, f"submits {label}")
        if answer.refusal is not None:
            world.say(f"{self.name} is refused: {answer.refusal.what}")
            if isinstance(answer.refusal, AlreadyExists):
                world.judge.broken(f"I2: {self.name} used {request_id} once, and is refused")
            return
        job: Job = answer.value.job
        operation.answered(world.tick(), (job.version, job.nice, job.state))
        world.labels.setdefault(label, job.job_id)
        for number in range(1, facts.get("tasks", 0)):
            world.labels.setdefault(f"{label}.{number}", JobId(job.job_id + number))
            world.judge.history_of(JobId(job.job_id + number)).append(operation)
        world.say(f"{self.name} hears that {label} is job {job.job_id}")
        world.judge.submitted(self.caller.name, request_id, label, job.job_id, operation)

    def _submission(self, facts: Facts, request_id: str) -> SubmitJob:
        run_s, saves_s = facts["run_s"], facts.get("saves_s")
        words = ["fake", f"run_for={run_s}", f"exit_code={facts.get('code', 0)}"]
        words += [f"saves_for={saves_s}"] if saves_s else []
        words += ["ignores_signals=yes"] if facts.get("deaf") else []
        tasks = facts.get("tasks", 0)
        due_s, before = facts.get("due_s"), self._world.labels.get(facts.get("after", ""))
        relation = Relation.AFTEROK if facts.get("if_ok") else Relation.AFTERANY
        return SubmitJob(
            caller=self.caller,
            request_id=request_id,
            digest=f"{facts['job']}",
            name=facts["job"],
            queue=facts.get("queue", ""),
            request=Request(gpus=facts["gpus"], nodes=facts.get("nodes")),
            spec=job_pb2.JobSpec(name=facts["job"], command=words).SerializeToString(),
            rules=RunRules(max_requeues=2, max_infra_failures=2, retry_backoff_s=1.0),
            grace_s=GRACE_S,
            hold=bool(facts.get("hold")),
            depends=AskedDependency((AskedTerm(relation, before),)) if before else None,
            run_estimate_s=run_s if due_s else None,
            deadlines=(AskedDeadline(100.0, after_s=due_s),) if due_s else (),
            array=AskedArray(tuple(range(tasks)), facts.get("at_once", 0)) if tasks else None,
        )

    async def _submit_group(self, facts: Facts) -> None:
        """Members are called `g0.m0`, `g0.m1` and so on, each is one job."""
        world, label, members = self._world, facts["job"], facts["members"]
        request_id = self._request_id()
        names = [f"{label}.m{number}" for number in range(len(members))]
        shared = {"client": facts["client"]}
        stimulus = SubmitGroup(
            caller=self.caller,
            request_id=request_id,
            digest=label,
            members=tuple(
                AskedMember(
                    f"m{number}",
                    1,
                    MemberEnds(member["ends"]),
                    self._submission({**shared, **member, "job": names[number]}, ""),
                )
                for number, member in enumerate(members)
            ),
        )
        operation = Operation("submit", None, world.tick())
        world.judge.submitting(self.caller.name, request_id, names[0])
        answer = await self._ask(stimulus, f"submits group {label}")
        if answer.refusal is not None:
            world.say(f"{self.name} is refused: {answer.refusal.what}")
            if isinstance(answer.refusal, AlreadyExists):
                world.judge.broken(f"I2: {self.name} used {request_id} once, and is refused")
            return
        jobs: tuple[Job, ...] = answer.value.jobs
        first = jobs[0]
        operation.answered(world.tick(), (first.version, first.nice, first.state))
        for name, job in zip(names, jobs, strict=True):
            world.labels.setdefault(name, job.job_id)
        for job in jobs[1:]:
            told = (job.version, job.nice, job.state)
            own = Operation("submit", None, operation.called, operation.back, told)
            world.judge.history_of(job.job_id).append(own)
        world.say(f"{self.name} hears that {label} is group {answer.value.group_id}")
        world.judge.submitted(self.caller.name, request_id, names[0], first.job_id, operation)

    async def _cancel(self, facts: Facts) -> None:
        await self._edit(CancelJob, "cancel", facts)

    async def _hold(self, facts: Facts) -> None:
        await self._edit(HoldJob, "hold", facts)

    async def _release(self, facts: Facts) -> None:
        await self._edit(ReleaseJob, "release", facts)

    async def _requeue(self, facts: Facts) -> None:
        await self._edit(RequeueJob, "requeue", facts)

    async def _nice(self, facts: Facts) -> None:
        await self._edit(UpdateJob, "nice", facts, nice=facts["to"])

    async def _edit(self, kind: Any, word: str, facts: Facts, **more: Any) -> None:
        world = self._world
        job_id = world.labels.get(facts["job"])
        if job_id is None:
            return
        stimulus = kind(caller=self.caller, request_id=self._request_id(), job_id=job_id, **more)
        operation = Operation(word, more.get("nice"), world.tick())
        world.judge.history_of(job_id).append(operation)
        said = f"asks: {word} {facts['job']}"
        answer = await self._ask(stimulus, said if not more else f"{said} to {more['nice']}")
        if answer.refusal is not None:
            world.judge.history_of(job_id).remove(operation)
            return
        value = answer.value
        job: Job = value.job if isinstance(value, UpdatedJob) else value
        told = (job.version, job.nice, job.state) if answer.tries == 1 else None
        operation.answered(world.tick(), None)
        if told is not None:
            look = Operation("look", None, operation.called, operation.back, told, operation)
            world.judge.history_of(job_id).append(look)
        world.say(f"{self.name} is answered: {word} {facts['job']}: {job.state}")
        world.judge.edited(word, job_id, job)

    async def _look(self, facts: Facts) -> None:
        """Read the job, as published."""
        world = self._world
        job_id = world.labels.get(facts["job"])
        if job_id is not None:
            await self.look(job_id)

    async def look(self, job_id: JobId) -> None:
        """One read of a job; a lost one is not repeated."""
        operation = Operation("look", None, self._world.tick())

        async def read(loop: Loop) -> Job | None:
            job = loop.current().job(job_id)
            self._world.judge.read(job_id, job)
            return job

        answer = await self._call(read)
        if answer is None or answer.refusal is not None:
            return
        job: Job | None = answer.value
        told = None if job is None else (job.version, job.nice, job.state)
        operation.answered(self._world.tick(), told)
        self._world.judge.looked(job_id, job)
        self._world.judge.history_of(job_id).append(operation)

    async def _drain(self, facts: Facts) -> None:
        await self._flag(facts, frozenset([NodeFlag.DRAINING]), NO_FLAGS)

    async def _undrain(self, facts: Facts) -> None:
        await self._flag(facts, NO_FLAGS, frozenset([NodeFlag.DRAINING]))

    async def _open(self, facts: Facts) -> None:
        """Whatever has closed it, it is open again."""
        every = frozenset([NodeFlag.DRAINING, NodeFlag.CORDONED, NodeFlag.QUARANTINED])
        await self._flag(facts, NO_FLAGS, every)

    async def _flag(
        self, facts: Facts, add: frozenset[NodeFlag], drop: frozenset[NodeFlag]
    ) -> None:
        stimulus = SetNodeFlags(
            caller=self.caller,
            request_id=self._request_id(),
            node_id=NodeId(facts["node"]),
            set_flags=add,
            clear_flags=drop,
            reason="a test",
        )
        await self._ask(stimulus, f"{'drains' if add else 'opens'} {facts['node']}")

    def _request_id(self) -> str:
        self._numbers += 1
        # Programs of one user have ids of their own; those of two users may be equal.
        return f"request-{self._numbers}" + ("-b" if self.name == "c3" else "")

    # --- the line -------------------------------------------------------------------------------

    async def _ask(self, stimulus: Stimulus, said: str) -> Answer:
        """Ask again, with the same id, until there is an answer."""
        world = self._world
        world.say(f"client {self.name} ({self.caller.name}) {said}")
        tries = 0
        while True:
            tries += 1
            answer = await self._call(lambda loop: loop.ask(stimulus))
            if answer is not None and not isinstance(answer.refusal, Unavailable):
                if tries > 1:
                    world.seen("a request was repeated")
                return answer._replace(tries=tries)
            await asyncio.sleep(self._draws.spread(0.2, 3.0))

    async def _call(self, ask: ASK) -> Answer | None:
        """One call; None when nothing came back."""
        world, draws, lost = self._world, self._draws, self._world.trouble_lost
        name = world.next_master(self.name)
        back: asyncio.Future[Answer] = world.loop.create_future()
        copies = 2 if draws.chance(world.trouble_doubled) else 1
        for _ in range(copies):
            if not draws.chance(lost):
                world.later(draws.pick(DELAYS_S), self._arrive, name, ask, back)
        try:
            answer = await asyncio.wait_for(back, TIMEOUT_S)
        except TimeoutError:
            world.seen("a call was not answered")
            world.turn_away(self.name, name)
            return None
        if isinstance(answer.refusal, Unavailable):
            world.turn_away(self.name, name)
        return answer

    def _arrive(self, name: str, ask: ASK, back: asyncio.Future[Answer]) -> None:
        master = self._world.masters[name]
        if not master.serving or master.loop is None:
            self._world.later(0.05, _settle, back, Answer(None, Unavailable("nobody listens")))
            return
        assert master.process is not None
        if master.loop.waiting and CURRENT.get() is None:
            self._world.seen("a call came while others waited")
        master.process.spawn(self._serve(ask, master, master.loop, back))

    async def _serve(
        self, ask: ASK, master: Master, loop: Loop, back: asyncio.Future[Answer]
    ) -> None:
        """In the master's process."""
        try:
            answer = Answer(await ask(loop))
        except DlqError as refusal:
            answer = Answer(None, refusal)
        if self._draws.chance(self._world.trouble_lost):
            self._world.seen("an answer was lost")
            return
        self._world.later(self._draws.pick(DELAYS_S), _settle, back, answer)


def _settle(back: asyncio.Future[Answer], answer: Answer) -> None:
    if not back.done():
        back.set_result(answer)
