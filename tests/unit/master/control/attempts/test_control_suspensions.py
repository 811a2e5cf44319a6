"""A job leaves its GPUs without a save, and comes back: the agents' real cores under a real master,
without processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_common.daemon.config import Seconds
from dlq_common.errors import IllegalTransition
from dlq_master.control.config import SuspensionConfig
from dlq_master.control.stimuli import PauseJob, ResumeJob, SetNodeFlags
from dlq_master.model.attempts.attempt import Attempt, AttemptState, SuspensionPhase
from dlq_master.model.attempts.suspending import SuspendRules, is_short
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import EndReason, HoldKind, JobState, RunRules
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Request
from dlq_master.model.why import ReasonCode
from dlq_nodeagent.model.errands import Move, MoveResult
from support.agent_bench import made
from support.builders import a_job
from support.core_agent import CoreAgent
from support.master_harness import ROOT, Master, config_of

TRAINS = ("fake", "run_for={}", "beat={{}}", "saves_for=1")
BUDGET = 64 << 30


class Site:
    """Two nodes of four GPUs, which suspend jobs."""

    def __init__(self, policy: str = "best-effort", **settings: str) -> None:
        self.master = Master(config_of(policy, **settings))
        self.agents = [CoreAgent(self.master, name, suspend_bytes=BUDGET) for name in ("n1", "n2")]
        self.settle(5)

    def submit(self, gpus: int = 4, nodes: int = 1, *, run_s: float = 1000.0, **more: Any) -> JobId:
        words = [word.format(run_s) for word in TRAINS]
        spec = job_pb2.JobSpec(name="job", command=words)
        spec.resources.gpu_count, spec.resources.node_count = gpus, nodes
        request = Request(gpus=gpus, nodes=nodes)
        ask = self.master.submission(request=request, **more)
        job_id: JobId = self.master.ask(replace(ask, spec=spec.SerializeToString())).job.job_id
        return job_id

    def settle(self, seconds: float) -> None:
        for moment in range(round(seconds * 2)):
            self.master.clock.advance(0.5)
            if moment % 4 == 3:
                self.master.tick()
            for agent in self.agents:
                agent.step()

    def until(self, true: Callable[[], bool], most_s: int = 400) -> None:
        for _ in range(most_s):
            if true():
                return
            self.settle(1)
        raise AssertionError(self.master.story())

    def living(self, job_id: JobId) -> Attempt | None:
        return self.master.state.cluster.live_attempt(self.master.job(job_id))

    def state(self, job_id: JobId) -> AttemptState | None:
        attempt = self.living(job_id)
        return None if attempt is None else attempt.state

    def is_out(self, job_id: JobId) -> bool:
        attempt = self.living(job_id)
        return attempt is not None and attempt.is_out

    def runs(self, job_id: JobId) -> bool:
        return self.state(job_id) is AttemptState.RUNNING

    def free(self) -> int:
        return self.master.state.cluster.capacity.free_gpus

    def pause(self, job_id: JobId) -> None:
        self.master.edit(PauseJob, job_id, in_memory=True)

    def resume(self, job_id: JobId) -> None:
        self.master.edit(ResumeJob, job_id)

    def restart_master(self) -> None:
        self.master.restart()
        for agent in self.agents:
            agent.lose_master()

    def out(self, gpus: int = 4, nodes: int = 1) -> JobId:
        """A job that is off its GPUs."""
        job_id = self.submit(gpus, nodes)
        self.until(lambda: self.runs(job_id))
        self.pause(job_id)
        self.until(lambda: self.is_out(job_id))
        return job_id

    @contextmanager
    def moving(self, move: Callable[[Move], MoveResult | None]) -> Iterator[None]:
        """Moves end so meanwhile."""
        for agent in self.agents:
            agent.move = move
        yield
        for agent in self.agents:
            agent.move = agent._moved


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.master.close()


@pytest.fixture
def busy() -> Iterator[Site]:
    """The fewest GPUs come first, and others are suspended for short ones."""
    site = Site("sf", preempt="suspend", min_run="off")
    yield site
    site.master.close()


@pytest.mark.parametrize(("gpus", "nodes"), [(2, 1), (8, 2)])
def test_a_job_leaves_its_gpus_and_comes_back_as_the_same_attempt(
    site: Site, gpus: int, nodes: int
) -> None:
    job_id = site.submit(gpus, nodes, run_s=100)
    site.until(lambda: site.runs(job_id))
    place = site.master.attempt(job_id).lease
    free = site.free()
    site.pause(job_id)
    assert site.state(job_id) is AttemptState.SUSPENDED
    assert site.free() == free, "its GPUs are its own until all ranks have left"
    site.until(lambda: site.is_out(job_id))
    assert site.free() == free + gpus
    site.settle(100)
    assert site.is_out(job_id), "a person's pause has no end"
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    now = site.master.attempt(job_id).lease
    assert (now.fence, now.allocation) == (place.fence, place.allocation)
    assert site.free() == free
    site.until(lambda: site.master.job(job_id).state is JobState.COMPLETED)
    job = site.master.job(job_id)
    assert job.attempts == 1
    assert job.total_executed_s < 130, "what it stood still is not charged"


def test_others_run_on_its_gpus_meanwhile_and_it_waits_for_them(site: Site) -> None:
    job_id = site.out(8, 2)
    guest = site.submit(8, 2, run_s=60)
    site.until(lambda: site.runs(guest))
    site.resume(job_id)
    later = site.submit(8, 2, run_s=60)
    site.settle(20)
    assert site.is_out(job_id)
    site.until(lambda: site.runs(job_id))
    assert site.master.job(guest).state is JobState.COMPLETED
    assert site.master.job(later).state is JobState.QUEUED, "it came before those that wait"


def test_a_refusal_leaves_the_job_running_and_brings_the_whole_gang_back(site: Site) -> None:
    job_id = site.submit(8, 2)
    site.until(lambda: site.runs(job_id))
    node = site.agents[0]

    def one_refuses(move: Move) -> MoveResult:
        first = move.launch.key.node_rank == 0 and move.out
        return MoveResult(refusal="memory: no room") if first else made(move)

    with site.moving(one_refuses):
        site.pause(job_id)
        site.until(lambda: site.runs(job_id))
    site.settle(10)
    assert not any(
        attempt.frozen for agent in site.agents for attempt in agent.host.attempts.values()
    )
    assert site.runs(job_id)
    assert "attempt_suspend_refused" in site.master.words(job_id)
    assert node.runs is not None


def test_who_cannot_come_back_goes_on_from_its_last_checkpoint(site: Site) -> None:
    job_id = site.out()
    with site.moving(lambda move: MoveResult(broken="restore: CUDA error 999")):
        site.resume(job_id)
        site.until(lambda: site.master.job(job_id).attempts == 2)
    site.until(lambda: site.runs(job_id))
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED_LOST


def test_a_node_that_is_emptied_throws_it_back(site: Site) -> None:
    job_id = site.out()
    node_id = site.living(job_id).place.node_ids[0]  # type: ignore[union-attr]  # it lives
    drain = SetNodeFlags(
        caller=ROOT, request_id="drain", node_id=node_id, set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(), reason="repair",
    )  # fmt: skip
    site.master.ask(drain)
    site.until(lambda: site.master.job(job_id).attempts == 2)
    site.until(lambda: site.runs(job_id))
    assert site.living(job_id).place.node_ids[0] != node_id  # type: ignore[union-attr]  # it lives


def test_a_master_that_restarts_finds_it_where_it_was(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None):
        site.pause(job_id)
        site.settle(2)
        site.restart_master()
        site.settle(20)
        assert site.state(job_id) in (AttemptState.SUSPENDED, AttemptState.UNKNOWN)
    site.until(lambda: site.is_out(job_id))
    site.restart_master()
    site.settle(20)
    assert site.is_out(job_id)
    site.resume(job_id)
    site.restart_master()
    site.until(lambda: site.runs(job_id))
    assert site.master.job(job_id).attempts == 1


def test_a_silent_node_keeps_it_suspended(site: Site) -> None:
    job_id = site.out()
    away = site.agents[:]
    site.agents.clear()
    site.settle(60)
    assert site.state(job_id) is AttemptState.UNKNOWN
    site.resume(job_id)
    assert site.state(job_id) is AttemptState.UNKNOWN
    site.agents.extend(away)
    site.until(lambda: site.runs(job_id))
    assert site.master.job(job_id).attempts == 1


def test_agents_that_never_answer_are_not_waited_for(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None):
        site.pause(job_id)
        site.until(lambda: site.runs(job_id))
        phases = [it.kind for it in site.master.events(job_id)]
        assert "attempt_suspend_refused" in phases


@pytest.mark.parametrize("phase", list(SuspensionPhase))
def test_a_cancelled_one_ends_wherever_it_stands(site: Site, phase: SuspensionPhase) -> None:
    job_id = site.out() if phase is not SuspensionPhase.LEAVING else site.submit()
    site.until(lambda: site.living(job_id) is not None)
    site.settle(2)
    with site.moving(lambda move: None):
        if phase is SuspensionPhase.LEAVING:
            site.pause(job_id)
        elif phase is SuspensionPhase.COMING:
            site.resume(job_id)
        site.settle(2)
        site.master.cancel(job_id)
        site.until(lambda: site.living(job_id) is None)
    assert site.master.job(job_id).state is JobState.CANCELLED
    assert site.free() == 8


def test_work_that_was_done_before_is_lost_with_a_suspended_attempt(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    site.settle(50)
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    done_s = site.master.job(job_id).worked_s
    assert done_s >= 50
    with site.moving(lambda move: MoveResult(broken="no way back")):
        site.resume(job_id)
        site.until(lambda: site.master.job(job_id).attempts == 2)
    assert site.master.job(job_id).worked_s < 20, "it has to be done again"


@pytest.mark.parametrize("guest_s", [120.0, 1200.0])
def test_a_plan_suspends_for_a_short_job_and_lets_save_for_a_long_one(
    busy: Site, guest_s: float
) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(1, run_s=20, time_limit_s=guest_s)
    site.until(lambda: site.runs(guest))
    suspended = [job_id for job_id in first if site.is_out(job_id)]
    if guest_s > 300.0:
        assert suspended == []
        assert "attempt_stop_requested" in site.master.words()
        return
    (job_id,) = suspended
    out = site.master.attempt(job_id).suspension
    assert out is not None
    assert out.for_job == guest
    (reason,) = site.master.why(job_id).reasons
    assert (reason.code, reason.blocking_jobs) == (ReasonCode.SUSPENDED, (guest,))
    site.until(lambda: site.runs(job_id))
    assert site.master.job(guest).state is JobState.COMPLETED
    assert site.master.job(job_id).attempts == 1


def test_a_refusal_of_a_plan_s_suspension_lets_the_job_save_and_leave(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    with site.moving(lambda move: MoveResult(refusal="move: CUDA error 801")):
        guest = site.submit(1, run_s=20, time_limit_s=120.0)
        site.until(lambda: site.runs(guest))
    words = site.master.words()
    assert words.count("attempt_suspend_refused") == 1
    assert words.count("attempt_stop_requested") == 1


def test_who_is_off_its_gpus_for_a_job_for_too_long_is_thrown_back(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(2, run_s=4000, time_limit_s=250.0, name="liar")
    site.until(lambda: site.runs(guest))
    (job_id,) = [it for it in first if site.is_out(it)]
    site.master.state.config = replace(
        site.master.state.config, suspend=SuspensionConfig(longest=Seconds(30.0))
    )
    site.until(lambda: site.master.job(job_id).live_attempt is None)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED_LOST


def test_a_node_that_suspends_none_says_so(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    node_id = site.master.attempt(job_id).place.node_ids[0]
    cluster = site.master.state.cluster
    cluster.put_node(cluster.nodes[node_id]._replace(suspend_bytes=0))
    with pytest.raises(IllegalTransition, match="suspends no jobs"):
        site.pause(job_id)
    assert site.runs(job_id)


@pytest.mark.parametrize("restarts", [True, False])
def test_time_without_a_master_or_in_silence_does_not_count_for_longest(
    busy: Site, restarts: bool
) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(2, run_s=4000, time_limit_s=250.0, name="liar")
    site.until(lambda: site.runs(guest))
    (job_id,) = [it for it in first if site.is_out(it)]
    if restarts:
        site.master.clock.advance(100)
        site.restart_master()
    else:
        away = site.agents[:]
        site.agents.clear()
        site.settle(100)
        site.agents.extend(away)
    site.master.state.config = replace(
        site.master.state.config, suspend=SuspensionConfig(longest=Seconds(60.0))
    )
    site.settle(30)
    assert site.state(job_id) is AttemptState.SUSPENDED
    site.until(lambda: site.master.job(job_id).live_attempt is None)


def test_time_without_a_master_does_not_count_for_a_move(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None):
        site.pause(job_id)
        site.settle(2)
        site.master.clock.advance(150)
        site.restart_master()
        site.settle(30)
        assert site.state(job_id) is AttemptState.SUSPENDED
        assert "attempt_suspend_refused" not in site.master.words(job_id)
        site.until(lambda: site.runs(job_id))


def test_who_was_paused_and_is_thrown_back_stays_paused(site: Site) -> None:
    job_id = site.out()
    for agent in site.agents:
        agent.core.supervisor.moves.short = lambda: True
    site.until(lambda: site.living(job_id) is None)
    site.settle(20)
    job = site.master.job(job_id)
    assert (job.state, job.hold) == (JobState.HELD, HoldKind.PAUSED)
    for agent in site.agents:
        agent.core.supervisor.moves.short = lambda: False
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))


def test_a_promised_job_is_not_suspended_for_a_plan(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    cluster = site.master.state.cluster
    for job_id in first:
        cluster.put_job(cluster.jobs[job_id]._replace(promised=0))
    guest = site.submit(1, run_s=20, time_limit_s=120.0)
    site.until(lambda: site.runs(guest))
    assert not any(map(site.is_out, first))


def test_a_member_of_a_group_is_not_suspended_alone(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    attempt = site.living(job_id)
    assert attempt is not None
    site.master.state.cluster.put_attempt(attempt._replace(together=True))
    with pytest.raises(IllegalTransition, match="together with others"):
        site.pause(job_id)


@pytest.mark.parametrize(
    ("guest", "short"),
    [
        ({"rules": RunRules(attended=True)}, False),
        ({"rules": RunRules(attended=True), "time_limit_s": 120.0}, True),
        ({"rules": RunRules(attended=True), "duration_estimate_s": 120.0}, False),
        ({"rules": RunRules(attended=True), "time_limit_s": 28800.0}, False),
        ({"duration_estimate_s": 120.0}, True),
        ({}, False),
    ],
)
def test_an_interactive_job_is_short_by_its_limit_or_where_nobody_can_save(
    guest: dict[str, Any], short: bool
) -> None:
    job = a_job(**guest)
    assert is_short(job, SuspendRules(), can_save=True) is short
    assert is_short(job, SuspendRules(), can_save=False) is (short or job.rules.attended)
    assert not is_short(job, SuspendRules(longest_s=60.0), can_save=True)
