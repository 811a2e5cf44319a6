"""When waiting jobs will start: asked of the twin in the background, published when it answers.

The twin looks at the queue while people look at waiting jobs. After `IDLE_S` without any it leaves,
and the next look at a waiting job, or a question, starts another one. Only a request about one job
waits for it. Its forecasts are stored nowhere, but for the first ranges that later starts are
compared with (control/forecast/accuracy.py). Without a forecast there is no estimate yet, and that
is no error. The agents have no part in it, and a silent node is taken to come back.
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
PAST_KEPT = 2_000  # jobs that are over, from which run times are told
RECENT_KEPT = 500  # jobs that were submitted last: such ones will come
# An estimate that is older is shown no more: its twin does not answer.
STALE_S = 900.0
# Jobs age while nothing happens: so often the twin looks again all the same.
UNCHANGED_S = 300.0
# The twin leaves when nobody has looked at a waiting job, or asked, for so long.
IDLE_S = 600.0
# The answer to a submission is no look at the job.
NEW_S = 1.0
# A question about one job looks at a state that is at most so old.
FRESH_S = 60.0
# The patience with a twin that works: so many times the CPU time that it may take, and as much at
# least.
_PATIENCE, _LEAST_PATIENCE_S = 20.0, 60.0
# So many people may ask at a time; each takes seconds.
MOST_QUESTIONS = 8
# A job that nobody has submitted needs a number that no other has.
NOT_SUBMITTED = JobId(1 << 62)

Answer = TypeVar("Answer")


class Unknown(Exception):
    """There is no estimate, and why."""


class ForecastKeeper:
    """The last forecasts of the twin, and their accuracy. Touched in the loop's thread only."""

    def __init__(
        self,
        state: State,
        config: TwinConfig,
        twin: Twin,
        clock: Clock,
        past: Callable[[], Awaitable[Iterable[Job]]] | None = None,
    ) -> None:
        """`past`: reads the jobs that ended last, the oldest first; for the first look."""
        self._state = state
        self._config = config
        self._twin = twin
        self._clock = clock
        self._health = state.forecast.twin_health
        self._numbers = count(1)
        self._looking = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._questions = 0  # of people, under way
        self._in_vain = False  # the last look
        self._wanted = asyncio.Event()  # people look at jobs that wait
        self._wanted_s = -math.inf  # when they did last
        self._changed = asyncio.Event()
        self._changed.set()
        self._looked_s = -math.inf  # when the twin was given the state that it has
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
        """A turn is on disk. O(changed jobs); renewals of leases change nothing here."""
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
        """Keep those that are new."""
        newest = self._recent[-1].job_id if self._recent else 0
        new = (job for job in jobs if job.job_id > newest)
        self._recent.extend(sorted(new, key=lambda job: job.job_id))

    def remember(self, jobs: Iterable[Job]) -> None:
        """Jobs that are over, the oldest first: how long others run is told from them."""
        for job in jobs:
            run_s = job.worked_s or job.total_executed_s
            if run_s > 0.0:
                limits = (job.time_limit_s, job.duration_estimate_s)
                self._past.append(PastRuns(job.user, job.name, run_s, *limits))

    # --- what others ask ------------------------------------------------------------------------

    def start(self, job: Job) -> Range | None:
        """When a job that waits will probably start (again); None: nobody knows, or it does not
        wait.
        """
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
        """While it is the same object, `start` changes only as foreseen times come."""
        latest = self.latest
        return None if latest is None or now_s - latest.at_s > STALE_S else latest

    def _want(self, now_s: float) -> None:
        self._wanted_s = now_s
        self._wanted.set()

    def quality(self) -> Quality:
        """How far first estimates were off."""
        return self._state.forecast.accuracy.quality()

    async def estimate(self, job: Job, patience_s: float) -> StartEstimate:
        """Of one job, whether it is there or not. Raises Unknown."""
        cpu_s = min(self._config.cpu_seconds, patience_s / 2.0)
        number = next(self._numbers)
        content = await self._asked(number, questions.ask(number, job, cpu_s), patience_s)
        return await self._believed(read_estimate, content)

    async def what_if(self, changes: Changes, patience_s: float) -> Compared:
        """All that wait, as things are and as they would be. Raises Unknown."""
        cpu_s = min(2.0 * self._config.cpu_seconds, patience_s / 2.0)
        number = next(self._numbers)
        content = await self._asked(number, questions.what_if(number, changes, cpu_s), patience_s)
        return await self._believed(read_compared, content)

    # --- the twin -------------------------------------------------------------------------------

    async def run(self) -> None:
        """While people look at waiting jobs: look again whenever something has changed, at most so
        often, and within its share of a core.
        """
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
        """Nobody wants to know: the twin leaves, until somebody does."""
        async with self._looking, self._asking:
            if self._clock.now_s() - self._wanted_s <= IDLE_S:
                return  # somebody has asked meanwhile
            self._wanted.clear()
            self._changed.set()
            self.latest, self._looked_s = None, -math.inf
            await self._twin.leave()

    async def refresh(self) -> float:
        """Look at everybody once; returns the CPU time that it took. Never raises for the twin's
        sake.
        """
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
        """There is no forecast."""
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
        """The answer to a question about the state that the twin has; it is given one first if that
        is old.
        """
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
        """Whether a question needs another look. Jobs that have come meanwhile are in the way of
        the next one; the twin's share of a core bounds such looks.
        """
        age_s = self._clock.now_s() - self._looked_s
        changed = self._changes > self._looked_changes
        return age_s > FRESH_S or (changed and age_s > self._rest_s(self._looked_cpu_s))

    def _rest_s(self, cpu_s: float) -> float:
        """From one look, which took so much CPU time, to the next."""
        return max(float(self._config.refresh_every), cpu_s / self._config.cpu_share)

    async def _believed(
        self, read: Callable[[Mapping[str, Any]], Answer], content: Mapping[str, Any]
    ) -> Answer:
        """The answer, read. A twin that says nonsense is ended; one that knows nothing is given a
        state again.
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
