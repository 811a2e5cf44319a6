"""Nodes that suspend jobs: the agents' real cores under a real master, without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dlq.v1 import job_pb2
from dlq_master.control.stimuli import PauseJob, ResumeJob
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.resources import Request
from dlq_nodeagent.model.errands import Move, MoveResult
from support.core_agent import CoreAgent
from support.master_harness import Master, config_of

BUDGET = 64 << 30


@contextmanager
def suspending_site(
    policy: str = "best-effort", gpus: int = 4, **settings: str
) -> Iterator[SuspendingSite]:
    """One until the end of the block."""
    site = SuspendingSite(policy, gpus, **settings)
    try:
        yield site
    finally:
        site.master.close()


class SuspendingSite:
    """Two nodes of four GPUs, which suspend jobs."""

    def __init__(self, policy: str = "best-effort", gpus: int = 4, **settings: str) -> None:
        self.master = Master(config_of(policy, **settings))
        self.agents = [
            CoreAgent(self.master, name, gpus, suspend_bytes=BUDGET) for name in ("n1", "n2")
        ]
        self.settle(5)

    def submit(
        self,
        gpus: int = 4,
        nodes: int = 1,
        *,
        run_s: float = 1000.0,
        saves_s: float = 1,
        **more: Any,
    ) -> JobId:
        words = ["fake", f"run_for={run_s}", "beat={}", f"saves_for={saves_s:g}"]
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
