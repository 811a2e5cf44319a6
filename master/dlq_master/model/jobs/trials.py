"""Knowledge of run times: the jobs to be profiled, their trials, and the run times of earlier
jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.cache import Memo
from dlq_master.model.estimates.lessons import Newest
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import SEVERAL, Job, JobState
from dlq_master.model.jobs.likeness import FEWEST_RUNS, Likeness, agreed, likeness, typical
from dlq_master.model.jobs.type_paces import Stepped, TypePaces

WINDOW_S = 3600.0  # for so long it is known who was sent to be profiled
RUNS_KEPT = 20  # of a family
FAMILIES_KEPT = 10_000
RATIOS_KEPT = 500
ERRORS_KEPT = 120  # ratios of a family: the 99th percentile needs 99
ERRING_KEPT = 500  # families
OUTCOMES_KEPT = 2000
SENT_KEPT = 20_000  # of two windows

_QUEUED, _COMPLETED = JobState.QUEUED, JobState.COMPLETED


Runs = dict[str, tuple[float, ...]]  # GPU type -> run times in seconds, the latest last


class Sent(NamedTuple):
    """A job that was sent to be profiled."""

    at_s: float
    user: str
    gpus: int  # that it asks for


class Remembered(NamedTuple):
    """The knowledge beyond the present jobs."""

    hour: int
    gpus: int
    ratios: Newest[float]
    sent: Newest[Sent]
    runs: dict[Likeness, Runs]
    taught: int
    errors: dict[str, tuple[float, ...]]
    erred: int
    outcomes: Newest[float]
    paces: TypePaces


class Profiling:
    """The jobs that wait for an estimate are derived from the jobs. The rest remembers jobs that
    may be forgotten, and lies in rows (`model/cluster/learned.py`).
    """

    __slots__ = (
        *("_resume_s", "_runs", "_sent", "gpus", "hour", "ratios", "runs", "unknown"),
        *("_kin", "_several", "_wondered", "foretold", "of_family", "taught"),
        *("_kinds", "erred", "errors", "foretellable", "outcomes", "paces"),
    )

    def __init__(self, resume_s: float) -> None:
        """`resume_s`: the time until work gets on that goes on; it is no part of a run time."""
        self._resume_s = resume_s
        self.unknown: dict[JobId, None] = {}  # nobody knows how long they run, or finds out
        # those of them that have a family
        self.of_family: dict[Likeness, dict[JobId, int]] = {}  # and how many came before, rising
        self._wondered = 0
        self._kinds: dict[str, dict[Likeness, None]] = {}  # of those, by family
        # those of them whose family has runs: most plans need not look at the others
        self.foretellable: dict[Likeness, None] = {}
        self.hour = -1  # for which it was decided how many GPUs are for trials
        self.gpus = 0  # so many
        self.ratios: Newest[float] = Newest(maxlen=RATIOS_KEPT)  # run times over estimates
        # the same of the latest families, the latest last
        self.errors: dict[str, tuple[float, ...]] = {}
        self.erred = 0  # rises with each of them
        # of promises that have ended: 1 if a wrong estimate broke it, 0 if it was kept
        self.outcomes: Newest[float] = Newest(maxlen=OUTCOMES_KEPT)
        self.paces = TypePaces()  # of steps, by GPU type
        self._sent: Newest[Sent] = Newest(maxlen=SENT_KEPT)
        self._runs: dict[Likeness, Runs] = {}
        self.taught = 0  # rises with every run that is learned
        # how long the last such jobs have run, on what they asked for, on GPUs of each type
        self.runs: Mapping[Likeness, Runs] = MappingProxyType(self._runs)
        self._kin: dict[str, dict[Likeness, None]] | None = None  # by family; None: not asked yet
        self._several: dict[Likeness, None] = {}  # those of several GPU types, the latest last
        self.foretold = Memo()  # answers from these runs

    @property
    def remembered(self) -> Remembered:
        """All but the unknown jobs, which are derived from the jobs."""
        return Remembered(
            self.hour,
            self.gpus,
            self.ratios,
            self._sent,
            self._runs,
            self.taught,
            self.errors,
            self.erred,
            self.outcomes,
            self.paces,
        )

    def remember(self, known: Remembered) -> None:
        """Know what another knew, and nothing else."""
        self.hour, self.gpus, self.ratios, self._sent, self._runs, self.taught = known[:6]
        self.errors, self.erred, self.outcomes, self.paces = known[6:]
        self.runs = MappingProxyType(self._runs)
        self._kin, self.foretellable, self.foretold = None, {}, Memo()
        self._trim()

    def index(self, before: Job | None, job: Job, pace: float = 1.0) -> None:
        """The job has another value, or is new. A job that is loaded taught its lesson before.
        `pace`: as of `learn`.
        """
        unknown = job.state is _QUEUED and not job.timed and not job.trials
        if unknown and job.live_attempt is None and job.basis.unmeasured is None:
            if before is not None and job.job_id in self.unknown:
                self._know(before)  # as it is now it may be of another kind
            if not job.request.without_gpus:  # trials are on GPUs
                self._wonder(job)
        elif before is not None and job.job_id in self.unknown:
            self._know(before)
        if before is None:
            return
        if job.trial_time_s is not None and before.trial_time_s is None:
            self.send(Sent(job.trial_time_s, job.user, job.request.gpus))
        if job.state is _COMPLETED and before.state is not _COMPLETED:
            self.learn(job, pace)

    def _wonder(self, job: Job) -> None:
        self.unknown[job.job_id] = None
        if job.family:
            self._wondered += 1
            key = likeness(job)
            if key not in self.of_family:
                self._enter(key)
            self.of_family[key][job.job_id] = self._wondered

    def _enter(self, key: Likeness) -> None:
        """The first of its kind waits."""
        self.of_family[key] = {}
        self._kinds.setdefault(key.family, {})[key] = None
        if self._kin is not None and key.family in self._kin:
            self.foretellable[key] = None

    def _know(self, job: Job) -> None:
        del self.unknown[job.job_id]
        if not job.family:
            return
        key = likeness(job)
        alike = self.of_family.get(key)
        if alike is not None:
            alike.pop(job.job_id, None)
            if not alike:
                self._leave(key)

    def _leave(self, key: Likeness) -> None:
        """The last of its kind waits no more."""
        del self.of_family[key]
        self.foretellable.pop(key, None)
        kinds = self._kinds[key.family]
        del kinds[key]
        if not kinds:
            del self._kinds[key.family]

    def sent(self, from_s: float, until_s: float = float("inf")) -> list[Sent]:
        """Jobs sent to be profiled in this span, as far back as is known (two windows)."""
        return [sent for sent in self._sent if from_s <= sent.at_s < until_s]

    def send(self, sent: Sent) -> None:
        """A job was sent to be profiled; times never fall."""
        self._sent.append(sent)
        self._trim()

    def _trim(self) -> None:
        sent = self._sent
        while sent and sent[0].at_s < sent[-1].at_s - 2 * WINDOW_S:
            sent.popleft()

    def learn(self, job: Job, pace: float = 1.0) -> None:
        """A job has completed, or completed before this master started. `pace`: seconds of its run
        time that a second on its GPUs did.
        """
        # A run that was preempted is reported without the time to resume, and with the last run.
        resumed_s = self._resume_s if job.goes_on(job.attempts) else 0.0
        run_s = _ran_s(job, pace) - resumed_s
        if run_s <= 0.0:
            return
        if job.duration_estimate_s and job.timed:
            self._learn_error(job, (job.worked_s - resumed_s * pace) / job.duration_estimate_s)
        if job.family and job.gpu_type_ran not in ("", SEVERAL):
            key = likeness(job)
            self.taught += 1
            known = self._runs.pop(key, {})  # the latest stands last
            of_type = (*known.get(job.gpu_type_ran, ()), run_s)[-RUNS_KEPT:]
            self._runs[key] = {**known, job.gpu_type_ran: of_type}
            self.foretold = Memo()
            self._relate(key)
            if len(self._runs) > FAMILIES_KEPT:
                oldest = next(iter(self._runs))
                self._unrelate(oldest)
                del self._runs[oldest]

    def learn_pace(self, job: Job, gpu_type: str, step_s: float) -> None:
        """A job has told how long its steps take on this type, for the first time."""
        self.paces.learn(likeness(job), gpu_type, Stepped(int(job.job_id), step_s))
        self.foretold = Memo()

    def measured_times(self, of: Likeness, one: str, other: str) -> float | None:
        """How many times as long jobs of this program take on `other` as on `one`; None: too little
        was measured, or it disagrees. Worked out once, until another fact is learned.
        """
        key = ("times", of.family, of.program, one, other)
        found: tuple[float | None] | None = self.foretold.get(key)
        if found is None:
            stepped = list(self.paces.ratios(of, one, other))
            found = (agreed(stepped or list(self._run_ratios(of, one, other))),)
            self.foretold.put(key, found)
        return found[0]

    def _run_ratios(self, of: Likeness, one: str, other: str) -> Iterator[float]:
        """The same by runs that completed on both types."""
        for kind in self.kin(of.family):
            if kind.program == of.program:
                runs = self.runs[kind]
                before = typical(runs.get(one, ()), FEWEST_RUNS)
                after = typical(runs.get(other, ()), FEWEST_RUNS)
                if before is not None and after is not None:
                    yield after / before

    def _learn_error(self, job: Job, ratio: float) -> None:
        """How wrong its estimate was; and whether that broke a promise."""
        self.ratios.append(ratio)
        if job.family:
            self.erred += 1
            known = self.errors.pop(job.family, ())
            self.errors[job.family] = (*known, ratio)[-ERRORS_KEPT:]
            if len(self.errors) > ERRING_KEPT:
                del self.errors[next(iter(self.errors))]
        if job.margin is None or job.end_time_s is None or not job.steps:
            return
        step = 0 if job.promised is None else job.promised  # if it was withdrawn, nobody knows
        kept = job.end_time_s <= job.submit_time_s + job.steps[step].deadline_s
        if kept or ratio > 1.0 + job.margin:
            self.outcomes.append(0.0 if kept else 1.0)

    def kin(self, family: str) -> Iterable[Likeness]:
        """All kinds of jobs of this family of which runs are known, the latest last."""
        return self._related().get(family, ())

    def to_foretell(self, *facts: object) -> list[Likeness]:
        """Kinds of jobs that wait, in the order of their first jobs. Each has runs in its family,
        and is not settled with these facts.
        """
        self._related()
        due = [key for key in self.foretellable if not self._is_settled(key, facts)]
        return sorted(due, key=self._first_came) if len(due) > 1 else due

    def settle(self, key: Likeness, *facts: object) -> None:
        """The runs say nothing new of these, until another run is learned, another of them waits,
        or the facts are others.
        """
        self.foretold.put(key, True, self._last_came(key), *facts)

    def _is_settled(self, key: Likeness, facts: tuple[object, ...]) -> bool:
        return bool(self.foretold.get(key, self._last_came(key), *facts))

    def _first_came(self, key: Likeness) -> int:
        return next(iter(self.of_family[key].values()))

    def _last_came(self, key: Likeness) -> int:
        return next(reversed(self.of_family[key].values()))

    def several(self, most: int) -> Iterable[Likeness]:
        """The latest kinds of jobs, `most` at most, that ran on GPUs of several types."""
        self._related()
        return islice(reversed(self._several), most)

    def _related(self) -> dict[str, dict[Likeness, None]]:
        """Derived from the runs when somebody asks first, and kept from then on."""
        if self._kin is None:
            self._kin, self._several, self.foretellable = {}, {}, {}
            for key in self._runs:
                self._relate(key)
        return self._kin

    def _relate(self, key: Likeness) -> None:
        """It was taught last."""
        if self._kin is None:
            return
        if key.family not in self._kin:
            self.foretellable.update(dict.fromkeys(self._kinds.get(key.family, ())))
        of_family = self._kin.setdefault(key.family, {})
        of_family.pop(key, None)  # it stands last then
        of_family[key] = None
        self._several.pop(key, None)
        if len(self._runs[key]) > 1:
            self._several[key] = None

    def _unrelate(self, key: Likeness) -> None:
        if self._kin is None:
            return
        self._several.pop(key, None)
        of_family = self._kin.get(key.family)
        if of_family is not None:
            of_family.pop(key, None)
            if not of_family:
                del self._kin[key.family]
                for kind in self._kinds.get(key.family, ()):
                    self.foretellable.pop(kind, None)


def _ran_s(job: Job, pace: float) -> float:
    """The seconds of its run on its type. One attempt tells them by the clock, whatever its pace
    was when it was placed.
    """
    once = job.attempts == 1 and not job.request.sizes and job.total_executed_s > 0.0
    return job.total_executed_s if once else job.worked_s / pace
