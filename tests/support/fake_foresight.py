"""Knows what a test tells it, and what it was asked."""

from __future__ import annotations

from dlq_master.control.forecast.accuracy import Quality
from dlq_master.control.forecast.forecasts import Unknown
from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import Changes, Compared, Forecast, StartEstimate


class FakeForesight:
    """Nobody knows anything, until it is told."""

    def __init__(self) -> None:
        self.latest: Forecast | None = None
        self.told: StartEstimate | None = None
        self.compared: Compared | None = None
        self.measured = Quality(0, None, None, None, None, None)
        self.asked: list[Job | Changes] = []

    def quality(self) -> Quality:
        return self.measured

    async def estimate(self, job: Job, patience_s: float) -> StartEstimate:
        self.asked.append(job)
        if self.told is None:
            raise Unknown("the twin was killed")
        return self.told

    async def what_if(self, changes: Changes, patience_s: float) -> Compared:
        self.asked.append(changes)
        if self.compared is None:
            raise Unknown("the twin was killed")
        return self.compared
