"""Programs that call the master, ask again when no answer comes, and may die at any await.

A program notes what it asks before it asks. When it has died, its host closes its calls, and it is
started again. Then it asks again under the same request ids, or has lost its notes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from world.stage.virtual_loop import CURRENT, Process

if TYPE_CHECKING:
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


@dataclass(slots=True, eq=False)
class Wish:
    """What a program shall do, as it stands in its notes."""

    what: str
    facts: Facts
    request: Any = None  # as it was asked first; None: it was not asked yet
    operation: Operation | None = None
    tries: int = 0


@dataclass(slots=True, eq=False)
class Flight:
    """One call on its way, and the tasks that serve it at a master."""

    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    ended: bool = False

    def end(self) -> None:
        """The caller's host has closed it: its handler is cancelled, as gRPC does."""
        self.ended = True
        for task in self.tasks:
            task.cancel()


class Client:
    """One program of one user. Its request ids are those of other users' programs too."""

    def __init__(self, world: World, name: str, caller: Caller) -> None:
        self._world = world
        self.name = name
        self.caller = caller
        self._draws = world.tape.stream(f"client {name}")
        self._numbers = 0  # in its notes
        self._wishes: list[Wish] = []  # likewise
        self._flights: list[Flight] = []
        self._starts = 0
        self.process = self._started()

    @property
    def busy(self) -> bool:
        """Some answer is still waited for."""
        return bool(self._wishes) or not self.process.alive

    # --- life -----------------------------------------------------------------------------------

    def _started(self) -> Process:
        self._starts += 1
        process = Process(f"{self.name}#{self._starts}", self._world.loop)
        process.burnt = self.crash
        return process

    def crash(self) -> None:
        """kill -9. Its host closes its calls; somebody starts it again."""
        world = self._world
        if not self.process.alive:
            return
        self.process.kill()
        world.say(f"client {self.name} is killed")
        if self._flights:
            world.seen("a client was killed during a call")
        for flight in self._flights:
            world.later(self._draws.pick(DELAYS_S), flight.end)
        self._flights = []
        world.later(world.restart_s(), self._boot)

    def _boot(self) -> None:
        """A new process over its notes, which may be lost."""
        self.process = self._started()
        self._numbers = self._last_number()
        wishes, self._wishes = self._wishes, []
        forgets = bool(wishes) and self._draws.pick((False, False, True))
        for wish in wishes:
            if wish.request is not None:
                did = "forgot" if forgets else "asked again"
                self._world.seen(f"a client that was killed {did}")
            if wish.request is None or not forgets:
                self._begin(wish)

    def _last_number(self) -> int:
        """That of its last request, as it has noted it."""
        return self._numbers

    def do(self, what: str, facts: Facts) -> None:
        """Begin to ask, or as soon as it runs again."""
        wish = Wish(what, facts)
        if self.process.alive:
            self._begin(wish)
        else:
            self._wishes.append(wish)

    def _begin(self, wish: Wish) -> None:
        self._wishes.append(wish)
        self.process.spawn(self._grant(wish)).add_done_callback(self._done)

    async def _grant(self, wish: Wish) -> None:
        act: Callable[[Wish], Coroutine[Any, Any, None]] = getattr(self, f"_{wish.what}")
        await act(wish)
        self._wishes.remove(wish)

    def _done(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._world.judge.broken(f"client {self.name} failed: {error!r}")

    # --- what it asks for -----------------------------------------------------------------------

    async def _submit(self, wish: Wish) -> None:
        world, facts, label = self._world, wish.facts, wish.facts["job"]
        if wish.request is None:
            self._submits(wish, label, self._submission(facts, self._request_id()))
        request_id, operation = wish.request.request_id, wish.operation
        assert operation is not None
        answer = await self._ask(wish, f"submits {label}")
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

    def _submits(self, wish: Wish, label: str, request: SubmitJob | SubmitGroup) -> None:
        """Note it before it is asked."""
        wish.request = request
        wish.operation = Operation("submit", None, self._world.tick())
        self._world.judge.submitting(self.caller.name, request.request_id, label)

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

    def _group(self, facts: Facts, names: Sequence[str]) -> SubmitGroup:
        label, members = facts["job"], facts["members"]
        shared = {"client": facts["client"]}
        return SubmitGroup(
            caller=self.caller,
            request_id=self._request_id(),
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

    async def _submit_group(self, wish: Wish) -> None:
        """Members are called `g0.m0`, `g0.m1` and so on, each is one job."""
        world, label = self._world, wish.facts["job"]
        names = [f"{label}.m{number}" for number in range(len(wish.facts["members"]))]
        if wish.request is None:
            self._submits(wish, names[0], self._group(wish.facts, names))
        request_id, operation = wish.request.request_id, wish.operation
        assert operation is not None
        answer = await self._ask(wish, f"submits group {label}")
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

    async def _cancel(self, wish: Wish) -> None:
        await self._edit(CancelJob, "cancel", wish)

    async def _hold(self, wish: Wish) -> None:
        await self._edit(HoldJob, "hold", wish)

    async def _release(self, wish: Wish) -> None:
        await self._edit(ReleaseJob, "release", wish)

    async def _requeue(self, wish: Wish) -> None:
        await self._edit(RequeueJob, "requeue", wish)

    async def _nice(self, wish: Wish) -> None:
        await self._edit(UpdateJob, "nice", wish, nice=wish.facts["to"])

    async def _edit(self, kind: Any, word: str, wish: Wish, **more: Any) -> None:
        world, facts = self._world, wish.facts
        job_id = world.labels.get(facts["job"])
        if job_id is None:
            return
        if wish.request is None:
            request_id = self._request_id()
            wish.request = kind(caller=self.caller, request_id=request_id, job_id=job_id, **more)
            wish.operation = Operation(word, more.get("nice"), world.tick())
            world.judge.history_of(job_id).append(wish.operation)
        operation, said = wish.operation, f"asks: {word} {facts['job']}"
        assert operation is not None
        answer = await self._ask(wish, said if not more else f"{said} to {more['nice']}")
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

    async def _look(self, wish: Wish) -> None:
        """Read the job, as published."""
        world = self._world
        job_id = world.labels.get(wish.facts["job"])
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

    async def _drain(self, wish: Wish) -> None:
        await self._flag(wish, frozenset([NodeFlag.DRAINING]), NO_FLAGS)

    async def _undrain(self, wish: Wish) -> None:
        await self._flag(wish, NO_FLAGS, frozenset([NodeFlag.DRAINING]))

    async def _open(self, wish: Wish) -> None:
        """Whatever has closed it, it is open again."""
        every = frozenset([NodeFlag.DRAINING, NodeFlag.CORDONED, NodeFlag.QUARANTINED])
        await self._flag(wish, NO_FLAGS, every)

    async def _flag(self, wish: Wish, add: frozenset[NodeFlag], drop: frozenset[NodeFlag]) -> None:
        node = wish.facts["node"]
        wish.request = wish.request or SetNodeFlags(
            caller=self.caller,
            request_id=self._request_id(),
            node_id=NodeId(node),
            set_flags=add,
            clear_flags=drop,
            reason="a test",
        )
        await self._ask(wish, f"{'drains' if add else 'opens'} {node}")

    def _request_id(self) -> str:
        self._numbers += 1
        # Programs of one user have ids of their own; those of two users may be equal.
        return f"request-{self._numbers}" + ("-b" if self.name == "c3" else "")

    # --- the line -------------------------------------------------------------------------------

    async def _ask(self, wish: Wish, said: str) -> Answer:
        """Ask again, with the same id, until there is an answer."""
        world, stimulus = self._world, cast("Stimulus", wish.request)
        world.say(f"client {self.name} ({self.caller.name}) {said}")
        while True:
            wish.tries += 1
            answer = await self._call(lambda loop: loop.ask(stimulus))
            if answer is not None and not isinstance(answer.refusal, Unavailable):
                if wish.tries > 1:
                    world.seen("a request was repeated")
                return answer._replace(tries=wish.tries)
            await asyncio.sleep(self._draws.spread(0.2, 3.0))

    async def _call(self, ask: ASK) -> Answer | None:
        """One call; None when nothing came back."""
        world, draws, lost = self._world, self._draws, self._world.trouble_lost
        name = world.next_master(self.name)
        back: asyncio.Future[Answer] = world.loop.create_future()
        flight = Flight()
        self._flights.append(flight)
        copies = 2 if draws.chance(world.trouble_doubled) else 1
        for _ in range(copies):
            if not draws.chance(lost):
                world.later(draws.pick(DELAYS_S), self._arrive, name, ask, back, flight)
        try:
            answer = await asyncio.wait_for(back, TIMEOUT_S)
        except TimeoutError:
            world.seen("a call was not answered")
            world.turn_away(self.name, name)
            return None
        finally:
            if flight in self._flights:  # else its process has died, and another one calls
                self._flights.remove(flight)
        if isinstance(answer.refusal, Unavailable):
            world.turn_away(self.name, name)
        return answer

    def _arrive(self, name: str, ask: ASK, back: asyncio.Future[Answer], flight: Flight) -> None:
        if flight.ended:
            return
        master = self._world.masters[name]
        if not master.serving or master.loop is None:
            self._world.later(0.05, _settle, back, Answer(None, Unavailable("nobody listens")))
            return
        assert master.process is not None
        if master.loop.waiting and CURRENT.get() is None:
            self._world.seen("a call came while others waited")
        flight.tasks.append(master.process.spawn(self._serve(ask, master.loop, back)))

    async def _serve(self, ask: ASK, loop: Loop, back: asyncio.Future[Answer]) -> None:
        """In the master's process."""
        try:
            answer = Answer(await ask(loop))
        except asyncio.CancelledError:
            self._world.seen("a call ended with its caller")
            raise
        except DlqError as refusal:
            answer = Answer(None, refusal)
        if self._draws.chance(self._world.trouble_lost):
            self._world.seen("an answer was lost")
            return
        self._world.later(self._draws.pick(DELAYS_S), _settle, back, answer)


def _settle(back: asyncio.Future[Answer], answer: Answer) -> None:
    if not back.done():
        back.set_result(answer)
