"""Whatever users do in whatever order: who may wait is always what the definitions say, from
scratch.
"""

import contextlib
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlq_common.errors import DlqError
from dlq_master.control.stimuli import (
    AskedArray,
    AskedDependency,
    AskedTerm,
    CancelJob,
    HoldJob,
    ReleaseJob,
    UpdateJob,
)
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.eligible import Relation, Term
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from support.extent import times
from support.master_harness import Master
from support.sim_agent import SimAgent

NAMES = ("a", "b")
PICK = st.integers(0, 30)
RELATIONS = st.sampled_from(list(Relation))


class Gates(RuleBasedStateMachine):
    """A small cluster, its users, and an oracle that knows no indexes."""

    @initialize()
    def cluster(self) -> None:
        self.master = Master()
        self.agent = SimAgent(self.master, NodeId("gpu01"))
        self.agent.hello()
        self.arrays: list[JobId] = []

    def teardown(self) -> None:
        if hasattr(self, "master"):
            self.master.close()

    # --- what happens -------------------------------------------------------------------------

    @rule(
        picks=st.lists(st.tuples(RELATIONS, PICK), max_size=3),
        any_=st.booleans(),
        cancel=st.booleans(),
        hold=st.booleans(),
        begin=st.sampled_from([None, 0.0, 40.0]),
    )
    def submit(self, picks: Any, any_: bool, cancel: bool, hold: bool, begin: float | None) -> None:
        begin_s = None if begin is None else self.master.clock.now_s() + begin
        self._try(
            self.master.submission(
                4, depends=self._asked(picks, any_, cancel), hold=hold, begin_time_s=begin_s
            )
        )

    @rule(
        count=st.integers(1, 4),
        limit=st.integers(0, 2),
        picks=st.lists(st.tuples(RELATIONS, PICK), max_size=1),
    )
    def submit_array(self, count: int, limit: int, picks: Any) -> None:
        array_id = JobId(self.master.state.jobs.next_id)
        array = AskedArray(tuple(range(count)), limit)
        self._try(self.master.submission(1, array=array, depends=self._asked(picks, False, False)))
        if array_id + 1 in self.master.state.cluster.jobs:
            self.arrays.append(array_id)

    @rule(pick=PICK, kill=st.booleans())
    def cancel(self, pick: int, kill: bool) -> None:
        self._edit(CancelJob, pick, kill=kill)

    @rule(pick=PICK)
    def hold(self, pick: int) -> None:
        self._edit(HoldJob, pick)

    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        self._edit(ReleaseJob, pick)

    @rule(pick=PICK, name=st.sampled_from(NAMES))
    def rename(self, pick: int, name: str) -> None:
        self._edit(UpdateJob, pick, name=name)

    @rule(pick=PICK, picks=st.lists(st.tuples(RELATIONS, PICK), max_size=2))
    def depend(self, pick: int, picks: Any) -> None:
        self._edit(UpdateJob, pick, depends=self._asked(picks, False, False))

    @rule(pick=PICK, limit=st.integers(0, 3))
    def limit(self, pick: int, limit: int) -> None:
        self._edit(UpdateJob, pick, concurrent=limit)

    @rule(pick=PICK, begin=st.sampled_from([None, 40.0]))
    def begin(self, pick: int, begin: float | None) -> None:
        at_s = None if begin is None else self.master.clock.now_s() + begin
        self._edit(UpdateJob, pick, begin_time_s=at_s)

    @rule()
    def time_passes(self) -> None:
        self.master.clock.advance(15.0)
        self.agent.heartbeat()
        self.master.tick()

    @rule(code=st.integers(0, 1))
    def somebody_ends(self, code: int) -> None:
        self.agent.obey()
        for key in sorted(self.agent.living())[:1]:
            self.agent.exit(key, code)
        self.agent.report()

    @rule()
    def all_run(self) -> None:
        self.agent.obey()
        for key, rank in list(self.agent.ranks.items()):
            if not rank.alive and not rank.ended:
                self.agent.start(key)
        self.agent.report()

    @precondition(lambda self: hasattr(self, "master"))
    @rule()
    def restart(self) -> None:
        self.agent.cut()
        self.master.restart()
        self.agent.hello()
        self.master.tick()

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def who_may_wait_is_what_the_definitions_say(self) -> None:
        if not hasattr(self, "master"):
            return
        jobs = self.master.state.cluster.jobs
        for job in jobs.values():
            if job.ended or job.live_attempt is not None:
                continue
            free = self._free(job)
            if job.hold is HoldKind.DEPENDENCY:
                assert not free, self.master.story()
            elif not (free and job.array is not None and job.array.concurrent):
                assert (job.blocked is None) is free, (job, self.master.story())
        for array_id in self.arrays:
            self._door(array_id)

    def _door(self, array_id: JobId) -> None:
        """As many tasks as may are let in, the lowest of those that could be."""
        jobs = self.master.state.cluster.jobs
        tasks = [job for job in jobs.values() if job.array and job.array.array_id == array_id]
        limits = {job.array.concurrent for job in tasks if job.array and not job.ended}
        if not limits or limits == {0}:
            return
        inside = [job for job in tasks if self._inside(job)]
        at_door = [
            job
            for job in tasks
            if not job.ended
            and job.live_attempt is None
            and job.state is not JobState.HELD
            and job.blocked is not None
            and self._free(job)
        ]
        assert not at_door or len(inside) >= max(limits), self.master.story()

    def _inside(self, job: Job) -> bool:
        over = job.ended and job.live_attempt is None
        held = job.state is JobState.HELD and job.live_attempt is None
        return not over and not held and job.blocked is None

    def _free(self, job: Job) -> bool:
        """Nothing but GPUs, a hold and its array's limit can keep it from starting."""
        begin_s = job.begin_time_s
        early = begin_s is not None and begin_s > self.master.clock.now_s()
        known = [] if job.depends is None else [self._term(job, term) for term in job.depends.terms]
        met = any(known) if job.depends is not None and job.depends.any else all(known)
        return met and not early

    def _term(self, job: Job, term: Term) -> bool:
        jobs = self.master.state.cluster.jobs
        if term.relation is Relation.SINGLETON:
            return term.met is True or not any(
                other.job_id < job.job_id
                and (other.user, other.name) == (job.user, job.name)
                and not (other.ended and other.live_attempt is None)
                and not (job.array is not None and other.array == job.array)
                for other in jobs.values()
            )
        if term.array:
            tasks = [
                each for each in jobs.values() if each.array and each.array.array_id == term.target
            ]
        else:
            tasks = [jobs[term.target]]
        over = [each.ended and each.live_attempt is None for each in tasks]
        well = [each.state is JobState.COMPLETED for each in tasks]
        started = [each.first_start_time_s is not None for each in tasks]
        match term.relation:
            case Relation.AFTER:
                return all(a or b for a, b in zip(over, started, strict=True))
            case Relation.AFTEROK:
                return all(over) and all(well)
            case Relation.AFTERNOTOK:
                return all(over) and not all(well)
            case _:
                return all(over)

    # --- doing --------------------------------------------------------------------------------

    def _asked(self, picks: Any, any_: bool, cancel: bool) -> AskedDependency | None:
        terms = []
        for relation, pick in picks:
            if relation is Relation.SINGLETON:
                terms.append(AskedTerm(relation, JobId(0)))
            elif (target := self._target(pick)) is not None:
                terms.append(AskedTerm(relation, target))
        return AskedDependency(tuple(terms), any_, cancel) if terms else None

    def _target(self, pick: int) -> JobId | None:
        known = [*self.arrays, *self.master.state.cluster.jobs]
        return known[pick % len(known)] if known else None

    def _edit(self, kind: Any, pick: int, **more: Any) -> None:
        jobs = list(self.master.state.cluster.jobs)
        if jobs:
            # A refusal changes nothing.
            with contextlib.suppress(DlqError):
                self.master.edit(kind, jobs[pick % len(jobs)], **more)

    def _try(self, stimulus: Any) -> None:
        with contextlib.suppress(DlqError):
            self.master.ask(stimulus)


TestGates = Gates.TestCase
TestGates.settings = settings(
    max_examples=times(12, 60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
