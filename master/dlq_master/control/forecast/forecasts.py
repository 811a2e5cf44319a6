"""When waiting jobs will start: asked of the twin in the background, published when it answers.

The twin forecasts while users look at waiting jobs. After `IDLE_S` without any it ends, and the
next look or question starts another one. Only a question about one job waits for its answer.
Forecasts are not stored, except the first range of each job, with which its real start is compared
(control/forecast/accuracy.py). Without a forecast a job has no estimate; that is no error. Agents
have no part in it. A silent node counts as coming back.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.text.instants import format_instant
from dlq_master.control.config import TwinConfig
from dlq_master.control.forecast.accuracy import Quality, compared_of
from dlq_master.control.forecast.helper_health import Health
from dlq_master.control.forecast.twin_process import Twin, TwinGone, TwinHangs, TwinRests
from dlq_master.control.loop.turn import State
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.planner import questions
from dlq_master.planner.answers import Nonsense, read_compared, read_estimate, read_forecast
from dlq_master.planner.forecasts import Changes, Compared, Forecast, PastRuns, Range, StartEstimate
from dlq_master.store.batch import Batch
from dlq_master.store.stored_tables import FORESEEN

_log = get_logger("master.forecasts")
PAST_KEPT = 2_000  # ended jobs from which run times are estimated
RECENT_KEPT = 500  # newest jobs: the twin expects more like these
# The age at which a forecast is not shown any more: its twin does not answer.
STALE_S = 900.0
# The time after which the twin forecasts again although nothing has changed: jobs age.
UNCHANGED_S = 300.0
# The twin ends after this time without a look at a waiting job, or a question.
IDLE_S = 600.0
# A read this soon after the submission is its answer, and no look at a waiting job.
NEW_S = 1.0
# The greatest age of the state for a question about one job.
FRESH_S = 60.0
# The time-out of a forecast: a multiple of its CPU budget, and at least so many seconds.
_PATIENCE, _LEAST_PATIENCE_S = 20.0, 60.0
# Questions at a time; each takes seconds.
MOST_QUESTIONS = 8
# The id of a job that was not submitted.
NOT_SUBMITTED = JobId(1 << 62)

Answer = TypeVar("Answer")


class Unknown(Exception):
    """There is no estimate; the text says why."""


class ForecastKeeper:
    """The last forecast of the twin, and its accuracy. For the loop's thread only."""

    def __init__(
        self,
        state: State,
        config: TwinConfig,
        twin: Twin,
        clock: Clock,
        past: Callable[[], Awaitable[Iterable[Job]]] | None = None,
    ) -> None:
        """`past`: reads the newest ended jobs, the oldest first, before the first forecast."""
        self._state = state
        self._config = config
        self._twin = twin
        self._clock = clock
        self._health = state.forecast.twin_health
        self._numbers = count(1)
        self._looking = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._questions = 0  # of people, under way
        self._in_vain = False  # whether the last forecast failed
        self._wanted = asyncio.Event()  # users look at waiting jobs
        self._wanted_s = -math.inf  # the last such look
        self._changed = asyncio.Event()
        self._changed.set()
        self._looked_s = -math.inf  # the time of the state that the twin has
        self._looked_cpu_s = 0.0  # and the CPU time that it took
        self._changes = self._looked_changes = 0  # turns that changed something, now and then
        self._read_past = past
        self._past: deque[PastRuns] = deque(maxlen=PAST_KEPT)
        newest = [*state.cluster.jobs.values()][-RECENT_KEPT:]
        self._recent: deque[Job] = deque(maxlen=RECENT_KEPT)  # submitted last
        self._submitted(newest)
        self.latest: Forecast | None = None

    # --- what others tell -----------------------------------------------------------------------

    def committed(self, batch: Batch) -> None:
        """Take in a committed turn, in O(changed jobs). Renewals of leases change nothing here."""
        if not (batch.jobs or batch.nodes or batch.forgotten_nodes):
            return
        self._changed.set()
        self._changes += 1
        self._submitted(batch.jobs)
        if self._read_past is None:  # what is on disk has been read
            self.remember(job for job in batch.jobs if job.ended and job.live_attempt is None)
        for one in filter(None, map(compared_of, batch.values(FORESEEN))):
            _log.info(
                "start_compared",
                job_id=one.job_id,
                late_s=round(one.late_s, 1),
                within=one.within,
                foreseen_before_s=round(one.started_s - one.at_s, 1),
            )

    def _submitted(self, jobs: Iterable[Job]) -> None:
        """Add new jobs to the recent ones."""
        newest = self._recent[-1].job_id if self._recent else 0
        new = (job for job in jobs if job.job_id > newest)
        self._recent.extend(sorted(new, key=lambda job: job.job_id))

    def remember(self, jobs: Iterable[Job]) -> None:
        """Add ended jobs, the oldest first, to the past runs."""
        for job in jobs:
            run_s = job.worked_s or job.total_executed_s
            if run_s > 0.0:
                limits = (job.time_limit_s, job.duration_estimate_s)
                self._past.append(PastRuns(job.user, job.name, run_s, *limits))

    # --- what others ask ------------------------------------------------------------------------

    def start(self, job: Job) -> Range | None:
        """The likely start of a waiting job; None: there is no forecast, or it does not wait."""
        if not _may_wait(job):
            return None
        latest, now_s = self.latest, self._clock.now_s()
        if now_s - job.submit_time_s >= NEW_S:
            self._want(now_s)
        if latest is None:
            return None
        range_ = latest.starts.get(job.job_id)
        if range_ is None or now_s - latest.at_s > STALE_S:
            return None
        return Range(*(max(now_s, at_s) for at_s in range_))

    def source(self, now_s: float) -> object:
        """A value that is replaced with each new forecast."""
        latest = self.latest
        return None if latest is None or now_s - latest.at_s > STALE_S else latest

    def _want(self, now_s: float) -> None:
        self._wanted_s = now_s
        self._wanted.set()

    def quality(self) -> Quality:
        """The accuracy of first estimates."""
        return self._state.forecast.accuracy.quality()

    async def estimate(self, job: Job, patience_s: float) -> StartEstimate:
        """Forecast one job, submitted or not. Raises Unknown."""
        cpu_s = min(self._config.cpu_seconds, patience_s / 2.0)
        number = next(self._numbers)
        content = await self._asked(number, questions.ask(number, job, cpu_s), patience_s)
        return await self._believed(read_estimate, content)

    async def what_if(self, changes: Changes, patience_s: float) -> Compared:
        """Forecast all waiting jobs, without and with the changes. Raises Unknown."""
        cpu_s = min(2.0 * self._config.cpu_seconds, patience_s / 2.0)
        number = next(self._numbers)
        content = await self._asked(number, questions.what_if(number, changes, cpu_s), patience_s)
        return await self._believed(read_compared, content)

    # --- the twin -------------------------------------------------------------------------------

    async def run(self) -> None:
        """While users look at waiting jobs: forecast after changes, within the share of a core."""
        while self._config.enabled:
            await self._wanted.wait()
            if self._clock.now_s() - self._wanted_s > IDLE_S:
                await self.rest()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(UNCHANGED_S):
                    await self._changed.wait()
            cpu_s = await self.refresh()
            await asyncio.sleep(self._rest_s(cpu_s))

    async def rest(self) -> None:
        """End the twin, unless a user has asked meanwhile."""
        async with self._looking, self._asking:
            if self._clock.now_s() - self._wanted_s <= IDLE_S:
                return  # somebody has asked meanwhile
            self._wanted.clear()
            self._changed.set()
            self.latest, self._looked_s = None, -math.inf
            await self._twin.leave()

    async def refresh(self) -> float:
        """Forecast all waiting jobs; returns the CPU time. Failures of the twin raise nothing."""
        async with self._looking:
            self._changed.clear()
            now_s = self._clock.now_s()
            nobody_waits = not any(map(_may_wait, self._state.cluster.jobs.values()))
            if nobody_waits and not self._health.failures:
                self.latest = Forecast(now_s, {}, math.inf, 0)
                return 0.0
            try:
                self.latest = forecast = await self._look(now_s)
            except Exception as error:  # noqa: BLE001 - a bug of what asks is no reason to ask no more
                self._missed(error)
                return 0.0
            self._in_vain = False
            self._state.forecast.accuracy.foreseen(
                forecast.starts, forecast.at_s, self._state.cluster.jobs
            )
            return forecast.cpu_s

    def _missed(self, error: Exception) -> None:
        """Note a failed forecast."""
        known = isinstance(error, Unknown | TwinGone)
        if not self._in_vain:
            _log.warning("nothing_foreseen", why=str(error), exc_info=None if known else error)
        if not isinstance(error, TwinRests):
            self._health.failed(str(error) or type(error).__name__, self._clock.now_s())
        self._in_vain = True
        self._changed.set()  # so that it is tried again

    async def _look(self, now_s: float) -> Forecast:
        await self._know_past()
        number, cpu_s = next(self._numbers), float(self._config.cpu_seconds)
        changes = self._changes
        shot = questions.state_of(self._state.cluster, self._state.policy, now_s)
        past, recent = tuple(self._past), tuple(self._recent)
        # Most of the work is done where turns go on meanwhile.
        question = await asyncio.to_thread(questions.look, number, shot, past, recent, cpu_s)
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE * cpu_s)
        try:
            content = await self._twin.ask(number, question, patience_s)
        except TwinHangs as error:
            await self._twin.restart(str(error))
            raise
        forecast = await self._believed(read_forecast, content)
        self._looked_s, self._looked_changes = now_s, changes
        self._looked_cpu_s = forecast.cpu_s
        self._health.answered()
        return forecast

    async def _know_past(self) -> None:
        read, self._read_past = self._read_past, None
        if read is not None:
            loaded = await read()
            since, self._past = self._past, deque(maxlen=PAST_KEPT)
            self.remember(loaded)
            self._past.extend(since)

    async def _asked(self, number: int, question: bytes, patience_s: float) -> Mapping[str, Any]:
        """The answer to a question. If the twin's state is old, it gets a new one first."""
        if not self._config.enabled:
            raise Unknown("this master foresees nothing: [twin] enabled is false")
        if self._health.failing:
            self._changed.set()  # so that it is tried again, and nobody waits for that
            raise Unknown(_failing(self._health.told()))
        if self._questions >= MOST_QUESTIONS:
            raise Unknown("too many ask just now")
        self._questions += 1
        self._want(self._clock.now_s())
        try:
            async with asyncio.timeout(patience_s):
                if self._is_old():
                    await self._look_for_one()
                async with self._asking:
                    return await self._twin.ask(number, question, patience_s)
        except (TimeoutError, TwinGone) as error:
            raise Unknown(
                str(error) or "the forecasting process has not answered in time"
            ) from None
        finally:
            self._questions -= 1

    async def _look_for_one(self) -> None:
        async with self._looking:
            if self._is_old():
                await self._look(self._clock.now_s())

    def _is_old(self) -> bool:
        """Whether the twin's state is too old for a question: beyond FRESH_S, or changed and old
        enough for its share of a core.
        """
        age_s = self._clock.now_s() - self._looked_s
        changed = self._changes > self._looked_changes
        return age_s > FRESH_S or (changed and age_s > self._rest_s(self._looked_cpu_s))

    def _rest_s(self, cpu_s: float) -> float:
        """Seconds from a forecast that took `cpu_s` to the next."""
        return max(float(self._config.refresh_every), cpu_s / self._config.cpu_share)

    async def _believed(
        self, read: Callable[[Mapping[str, Any]], Answer], content: Mapping[str, Any]
    ) -> Answer:
        """Read an answer. A twin with a malformed answer is restarted; one without a state gets a
        new one.
        """
        if "none" in content:
            self._looked_s = -math.inf
            self._changed.set()
            raise Unknown(str(content["none"])[:200])
        try:
            return read(content)
        except Nonsense as error:
            await self._twin.restart(f"it says nonsense: {error}")
            raise Unknown(
                "the forecasting process said nonsense (master log: twin_ended); retrying"
            ) from None


def _failing(health: Health) -> str:
    since = "" if health.since_s is None else f" since {format_instant(health.since_s)}"
    return (
        f"the forecasting process fails: {health.failures} times in a row{since}, last: "
        f"{health.last_error}; it is tried again by itself; `dlq doctor` says more"
    )


def _may_wait(job: Job) -> bool:
    return job.live_attempt is None and not job.ended and job.hold is None
