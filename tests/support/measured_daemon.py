"""The stepped master in a world whose jobs tell their steps, and are tried on fewer GPUs than they
ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify
from typing import Any

from dlq.v1.agent_service_pb2 import RankProgress
from support.stepped_daemon import SteppedDaemon, Work
from support.virtual_agent import VirtualAgent

TOTAL = 1_000_000  # steps of every job: so many that an instant lies on one
_AFTER_S = 1e-3  # sums of floats may stop short of what they were to reach


class MeasuredDaemon(SteppedDaemon):
    """Every job says its step when it begins and when its trial is over.

    `paces`: all of a job's work at the pace of trials on one node and on two, by its name;
    `profile_s`: of a trial.
    """

    def __init__(
        self, *args: Any, paces: Mapping[str, tuple[float, float]], profile_s: float, **costs: Any
    ) -> None:
        super().__init__(*args, **costs)
        self._paces, self._profile_s = paces, profile_s
        self._speaking: list[tuple[str, int]] = []  # jobs and attempts, at this instant
        self._tried: dict[tuple[str, int], int] = {}  # trials on fewer GPUs: on so many nodes

    def _begun_on(self, node_id: str) -> Callable[[str, int, int], None]:
        inner = super()._begun_on(node_id)

        def begun(job_id: str, number: int, rank: int) -> None:
            inner(job_id, number, rank)
            work = self._work(job_id)
            (attempt,) = [
                one
                for key, one in self.state.cluster.attempts.items()
                if (str(key.job_id), key.number) == (job_id, number)
            ]
            if len(work.ranks) < len(attempt.ranks):
                return
            left_s = self._profile_s - work.done_s
            if attempt.lease.allocation.width < work.job.gpus:
                self._tried[job_id, number] = len(attempt.ranks)
                self._is_only_tried(work, job_id, number)
                left_s = self._profile_s
            for at_s in (0.0, max(0.0, left_s) + _AFTER_S):
                self._foresee(work.from_s + at_s, "beat", job_id, number)

        return begun

    def _is_only_tried(self, work: Work, job_id: str, number: int) -> None:
        """It does nothing of its work, and is ended by the master."""
        work.from_s = self.clock.now_s()
        work.begun = work.done_s > 0.0
        finish = ("finish", job_id, number)
        self._agenda = [event for event in self._agenda if event[2:] != finish]
        heapify(self._agenda)

    async def _happens(self, what: str, name: str, number: int) -> None:
        if what != "beat":
            await super()._happens(what, name, number)
            return
        self._speaking.append((name, number))
        following = [event[2] for event in self._agenda if event[0] <= self.clock.now_s()]
        if "beat" not in following:
            await self._hear(self._speaking)
            self._speaking = []

    async def _hear(self, speaking: list[tuple[str, int]]) -> None:
        """Jobs say how far they are; all nodes are heard of, and the master looks at the time."""
        said: dict[VirtualAgent, list[RankProgress]] = {}
        for job_id, number in speaking:
            work = self._work(job_id)
            if work.attempt == number:
                word = self._said(work, job_id, number)
                said.setdefault(work.ranks[0], []).append(word)
        if said:
            await self._look_at_time(said)

    def _said(self, work: Work, job_id: str, number: int) -> RankProgress:
        nodes = self._tried.get((job_id, number))
        whole_s = self._paces[work.job.name][nodes - 1] if nodes else work.job.work_s
        done_s = self.clock.now_s() - work.from_s + (0.0 if nodes else work.done_s)
        step = int(done_s / whole_s * TOTAL)
        said = RankProgress(job_id=job_id, step=step, total_step_count=TOTAL)
        said.fence.epoch, said.fence.attempt = 1, number
        said.age_duration.FromNanoseconds(0)
        return said
