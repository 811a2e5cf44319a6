"""Anything may happen in any order: people, jobs, lines that break, agents and masters that die.

After every step the master's own invariants hold (support/invariants.py), and what really runs is
compared with what may: one attempt of a job at a time, one owner of a GPU. In the calm at the end
everything that can end has ended, every node is up and nothing is left to say.
"""

from contextlib import suppress
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dlq_common.errors import DlqError, IllegalTransition
from dlq_master.control.stimuli import (
    CancelJob,
    FenceNode,
    HoldJob,
    PauseJob,
    ReleaseJob,
    ReportedRank,
    ResumeJob,
    Tick,
)
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, JobState, RunRules
from dlq_master.model.nodes.node import NodeState
from support.extent import times
from support.invariants import check_books, check_journal
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent

WIDTHS = st.sampled_from([1, 2, 4])
WHICH = st.integers(0, 2)
PICK = st.integers(0, 10)
EDITS = st.sampled_from([CancelJob, HoldJob, ReleaseJob, PauseJob, ResumeJob])


class Weather(RuleBasedStateMachine):
    """One master and three agents."""

    policy: tuple[str, dict[str, str]] = ("best-effort", {})

    def __init__(self) -> None:
        super().__init__()
        name, words = self.policy
        self.master = Master(config_of(name, **words))
        self.agents = [SimAgent(self.master, NodeId(f"gpu{number:02}")) for number in (1, 2, 3)]
        for agent in self.agents:
            agent.hello()
        self.since_s = self.master.clock.now_s()
        self.old: list[tuple[int, list[ReportedRank]]] = []
        self.accepted: dict[JobId, str] = {}

    def teardown(self) -> None:
        self._calm_down()
        check_journal(self.master.state, self.master.store)
        now_s = self.master.clock.now_s()
        check_books(self.master.store, 12 * (now_s - self.since_s), now_s)
        self.master.close()

    # --- people -------------------------------------------------------------------------------

    @rule(gpus=WIDTHS, nodes=st.none() | st.integers(1, 3), restarts=st.integers(0, 1))
    def submit(self, gpus: int, nodes: int | None, restarts: int) -> None:
        width = gpus if nodes is None else gpus * nodes
        request_id = f"job-{len(self.accepted)}"
        rules = RunRules(max_restarts=restarts)
        job = self.master.submit(width, nodes=nodes, request_id=request_id, rules=rules)
        self.accepted[job.job_id] = request_id

    @precondition(lambda self: self.accepted)
    @rule(pick=PICK)
    def repeat_a_submission(self, pick: int) -> None:
        job_id = self._job(pick)
        again = self.master.submit(1, request_id=self.accepted[job_id])
        assert again.job_id == job_id

    @precondition(lambda self: self.accepted)
    @rule(pick=PICK, edit=EDITS)
    def edit(self, pick: int, edit: Any) -> None:
        try:
            job = self.master.edit(edit, self._job(pick))
        except DlqError:
            return
        assert (edit is not CancelJob) or job.ended

    # --- lines --------------------------------------------------------------------------------

    @rule(which=WHICH, count=st.integers(1, 5))
    def obey(self, which: int, count: int) -> None:
        self.agents[which].obey(count)

    @rule(which=WHICH)
    def report(self, which: int) -> None:
        agent = self.agents[which]
        self.old = [*self.old[-5:], (which, agent.waiting_reports())]
        agent.report()

    @precondition(lambda self: self.old)
    @rule(pick=PICK)
    def repeat_old_reports(self, pick: int) -> None:
        which, reports = self.old[pick % len(self.old)]
        agent = self.agents[which]
        if reports and agent.session_id is not None:
            agent.send([*reversed(reports)], acknowledged=False)

    @rule(which=WHICH, noticed=st.booleans())
    def cut(self, which: int, noticed: bool) -> None:
        self.agents[which].cut(noticed=noticed)

    @rule(which=WHICH)
    def hello(self, which: int) -> None:
        self.agents[which].hello()

    @rule(which=WHICH)
    def heartbeat(self, which: int) -> None:
        self.agents[which].heartbeat()

    @rule()
    def all_is_well_for_a_moment(self) -> None:
        for agent in self.agents:
            if agent.session_id is None:
                agent.hello()
            agent.obey()
            for key in list(agent.ranks):
                agent.start(key)
            agent.report()

    @rule(which=WHICH, pick=PICK, code=st.sampled_from([0, 1, 99]))
    def end_and_tell(self, which: int, pick: int, code: int) -> None:
        self.exit(which, pick, code)
        self.agents[which].report()

    # --- jobs ---------------------------------------------------------------------------------

    @rule(which=WHICH, pick=PICK)
    def start(self, which: int, pick: int) -> None:
        agent = self.agents[which]
        if agent.ranks:
            agent.start([*agent.ranks][pick % len(agent.ranks)])

    @rule(which=WHICH, pick=PICK)
    def fail_to_start(self, which: int, pick: int) -> None:
        agent = self.agents[which]
        if agent.ranks and pick == 1:
            agent.fail_start([*agent.ranks][pick % len(agent.ranks)])

    @rule(which=WHICH, pick=PICK, code=st.sampled_from([0, 0, 1, 99, 143]))
    def exit(self, which: int, pick: int, code: int) -> None:
        living = self.agents[which].living()
        if living:
            self.agents[which].exit(living[pick % len(living)], code)

    @rule(which=WHICH, pick=PICK)
    def save(self, which: int, pick: int) -> None:
        living = self.agents[which].living()
        if living:
            self.agents[which].save(living[pick % len(living)], pick)

    # --- time and death -----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 5.0, 21.0, 26.0, 271.0, 3606.0]))
    def time_passes(self, seconds: float) -> None:
        self.master.clock.advance(seconds)
        for agent in self.agents:
            if agent.session_id is None:
                agent.guard()
            else:
                agent.heartbeat()
        for _ in range(2):
            self.master.turn(Tick("leases"))

    @rule()
    def kill_the_master(self) -> None:
        for agent in self.agents:
            agent.cut(noticed=False)
        self.master.restart()

    @rule(which=WHICH)
    def kill_the_agent(self, which: int) -> None:
        self.agents[which].restart()

    @rule(which=WHICH, fenced=st.booleans(), rarely=st.integers(0, 3))
    def boot_the_host(self, which: int, fenced: bool, rarely: int) -> None:
        if rarely:
            return
        agent = self.agents[which]
        agent.reboot()
        if fenced:
            fence = FenceNode(caller=ROOT, request_id="", node_id=agent.node_id, reason="off")
            with suppress(IllegalTransition):  # it is still thought to be up
                self.master.ask(fence)

    # --- the truth ----------------------------------------------------------------------------

    @invariant()
    def what_runs_is_what_may(self) -> None:
        self._one_attempt_of_a_job_runs()
        self._a_gpu_has_one_owner()
        self._what_was_accepted_is_there()

    def _one_attempt_of_a_job_runs(self) -> None:
        runs: dict[JobId, set[int]] = {}
        for agent in self.agents:
            for key in agent.living():
                runs.setdefault(key.job_id, set()).add(key.number)
        twice = {job_id: numbers for job_id, numbers in runs.items() if len(numbers) > 1}
        assert not twice, self.master.story()

    def _a_gpu_has_one_owner(self) -> None:
        for agent in self.agents:
            held = [
                index for key in agent.living() for index in agent.ranks[key].launch.gpu_indexes
            ]
            assert len(held) == len(set(held)), self.master.story()

    def _what_was_accepted_is_there(self) -> None:
        for job_id in self.accepted:
            self.master.job(job_id)

    # --- helpers ------------------------------------------------------------------------------

    def _job(self, pick: int) -> JobId:
        return [*self.accepted][pick % len(self.accepted)]

    def _let_all_go(self) -> None:
        for job in list(self.master.loop.published.jobs()):
            if job.hold is not None:
                paused = job.hold is HoldKind.PAUSED
                self.master.edit(ResumeJob if paused else ReleaseJob, job.job_id)

    def _calm_down(self) -> None:
        """Everybody talks, everything that runs ends well: then nothing is left over."""
        self._let_all_go()
        for _ in range(6 + 4 * len(self.accepted)):
            for agent in self.agents:
                agent.hello()
                agent.obey()
                for key in list(agent.ranks):
                    agent.start(key)
                agent.report()
            for agent in self.agents:
                for key in agent.living():
                    agent.exit(key, 0)
                agent.report()
            self.master.clock.advance(1.0)
            self.master.tick()
            self._let_all_go()
            if all(job.ended for job in self.master.loop.published.jobs()):
                break
        left = [job for job in self.master.loop.published.jobs() if not job.ended]
        assert left == [], self.master.story(left[0].job_id)
        for agent in self.agents:
            agent.report()
            agent.obey()
        assert all(
            node.state is NodeState.UP and not node.flags
            for node in self.master.loop.published.nodes()
        ), self.master.story()
        assert self.master.state.attempts.outbox == {}, self.master.story()
        assert all(job.live_attempt is None for job in self.master.loop.published.jobs())
        assert {job.state for job in self.master.loop.published.jobs()} <= {
            JobState.COMPLETED,
            JobState.FAILED,
            JobState.CANCELLED,
        }


class LasWeather(Weather):
    """The same with levels, preemption at boundaries and resumption elsewhere."""

    policy = ("tiresias-las", {"thresholds": "60,600"})


TestWeather = Weather.TestCase
QUICK = settings(
    max_examples=times(12, 80),
    stateful_step_count=50,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
TestWeather.settings = QUICK
TestLasWeather = LasWeather.TestCase
TestLasWeather.settings = QUICK
