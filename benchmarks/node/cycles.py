"""One job that is paused and resumed again and again, and the instants of every step on the way."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.living import Living
from dlq.v1 import job_pb2, job_service_pb2

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub


@dataclass(frozen=True, slots=True)
class Cycle:
    """One pause and the resume after it; seconds on CLOCK_BOOTTIME."""

    asked_s: float
    noticed_s: float
    saved_s: float
    ended_s: float
    """When the shim had written that nothing of the attempt was left."""
    paused_s: float
    resumed_s: float
    started_s: float
    """When the shim of the next attempt began to start its program, or podman."""
    begun_s: float
    load_begin_s: float
    load_end_s: float

    @property
    def pause_beyond_s(self) -> float:
        return self.paused_s - self.asked_s - (self.saved_s - self.noticed_s)


class Job:
    """The job of this benchmark, its notes, and the master's reports of it."""

    def __init__(self, stub: JobServiceAsyncStub, living: Living, agent_dir: Path) -> None:
        self._stub = stub
        self._notes = living.root / "said" / "notes"
        self._agent_dir = agent_dir
        self._heard: dict[tuple[int, str], float] = {}
        self._news = asyncio.Condition()
        self._requests = 0
        self.job_id = ""

    async def listen(self) -> None:
        """Note when each event arrives."""
        async for message in self._stub.WatchEvents(
            job_service_pb2.WatchEventsRequest(cursor=-1), timeout=3600
        ):
            at_s = now_s()
            async with self._news:
                self._heard.setdefault((message.event.attempt, message.event.kind), at_s)
                self._news.notify_all()

    async def submit(self, spec: job_pb2.JobSpec) -> None:
        """Submit it; its first attempt runs some time later."""
        request = job_service_pb2.SubmitJobRequest(request_id=self._request_id(), spec=spec)
        self.job_id = (await self._stub.SubmitJob(request, timeout=30)).job.job_id

    async def pause(self, attempt: int) -> tuple[float, float]:
        """When it was asked, and when the master had the GPUs back."""
        asked_s = now_s()
        request = job_service_pb2.PauseJobRequest(
            request_id=self._request_id(), job_id=self.job_id, accept_loss=True
        )
        await self._stub.PauseJob(request, timeout=30)
        return asked_s, await self._heard_of(attempt, "attempt_preempted")

    async def resume(self) -> float:
        """When it was asked."""
        asked_s = now_s()
        request = job_service_pb2.ResumeJobRequest(
            request_id=self._request_id(), job_id=self.job_id
        )
        await self._stub.ResumeJob(request, timeout=30)
        return asked_s

    async def cancel(self) -> None:
        """End it."""
        request = job_service_pb2.CancelJobRequest(
            request_id=self._request_id(), job_id=self.job_id, kill=True
        )
        await self._stub.CancelJob(request, timeout=30)

    async def noted(self, attempt: int, what: str) -> dict[str, float]:
        """The notes of an attempt, once it has noted this."""
        deadline_s = now_s() + 60
        while now_s() < deadline_s:
            lines = self._notes.read_text().splitlines() if self._notes.exists() else []
            notes = [json.loads(line) for line in lines]
            found = {note["what"]: note["at_s"] for note in notes if note["attempt"] == attempt}
            if what in found:
                return found
            await asyncio.sleep(0.01)
        raise TimeoutError(f"attempt {attempt} never noted {what!r}")

    def ended_s(self, attempt: int) -> float:
        """When its shim was done with an attempt."""
        return self._record(attempt, "exit", "ended_boottime_ns")

    def started_s(self, attempt: int) -> float:
        """When its shim went to work."""
        return self._record(attempt, "started", "started_boottime_ns")

    def _record(self, attempt: int, name: str, instant: str) -> float:
        at = self._agent_dir / "attempts" / f"{self.job_id}.{attempt}.0" / f"{name}.json"
        return float(json.loads(at.read_text())[instant]) / 1e9

    async def _heard_of(self, attempt: int, kind: str) -> float:
        async with self._news, asyncio.timeout(60):
            await self._news.wait_for(lambda: (attempt, kind) in self._heard)
            return self._heard[attempt, kind]

    def _request_id(self) -> str:
        self._requests += 1
        return f"{os.getpid()}-{self._requests}"


async def cycles(job: Job, count: int, settle_s: Callable[[], float], first: int) -> list[Cycle]:
    """`count` pauses and resumes, from attempt `first`, which runs or soon will, on."""
    found = []
    for attempt in range(first, first + count):
        await job.noted(attempt, "load_end")
        await asyncio.sleep(settle_s())
        asked_s, paused_s = await job.pause(attempt)
        left = await job.noted(attempt, "saved")
        await asyncio.sleep(0.2)
        resumed_s = await job.resume()
        back = await job.noted(attempt + 1, "load_end")
        found.append(
            Cycle(
                asked_s=asked_s,
                noticed_s=left["noticed"],
                saved_s=left["saved"],
                ended_s=job.ended_s(attempt),
                paused_s=paused_s,
                resumed_s=resumed_s,
                started_s=job.started_s(attempt + 1),
                begun_s=back["begun"],
                load_begin_s=back["load_begin"],
                load_end_s=back["load_end"],
            )
        )
    return found


def now_s() -> float:
    """CLOCK_BOOTTIME, which the job, the shim and the agent go by too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
