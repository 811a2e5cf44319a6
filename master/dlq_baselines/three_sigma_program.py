"""3Sigma's own program: when each job is to start, by the expected reward of every start
(`plan=program`).

Park et al., EuroSys 2018: time ahead is cut into slots. A job has an option for each slot in which
it may start, and at most one is chosen. The worth of an option is the expectation of the reward
over the distribution of the job's run time. A
job uses its GPUs in a slot with the chance that it still runs there. The expected use of all jobs
fits into the GPUs of each slot. So a wide job
may be planned for a later slot, and GPUs stay idle for it.

    max  sum w_ik x_ik      sum_k x_ik <= 1      sum_i sum_{k <= t} n_i P_i(t - k) x_ik <= C(t)

- Of jobs that run, those with deadlines use their GPUs as they are expected to. A best-effort job
  that runs has one option, to go on. It is worth one and one more for each of its GPUs: that is the
  price of a stop. No more of them leave than have to, the youngest first.
- A best-effort job that waits is worth one in the first slot, and less with each slot. So is a job
  that can't earn anything any more. A job whose run time nobody knows is expected to run on.
- Of equal starts the earlier one is worth a little more.
- The first `MOST_JOBS` that wait are in the program: by reward for each GPU-second, then in the
  order of arrival. After it every other job starts that fits beside what has been planned.
- The program counts GPUs and no places. It is solved at each plan, up to a gap of 1 % or so many
  nodes of its search. So the answer does not depend on the machine. `solver_s` is a limit of time.
  Without an answer the greedy order counts, as with `plan=greedy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from dlq_baselines.three_sigma import Chances, in_order
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.late import np, optimize, sparse
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import only_gpus
from dlq_master.model.view import View
from dlq_master.policy.order.by_key import left_s
from dlq_master.policy.order.ordered import by_priority, lined_up

SLOT_S = 900.0
SLOTS = 12
MOST_JOBS = 40  # that wait
MOST_NODES = 100  # of the search
GAP = 0.01
_LATER = 1e-3  # of its worth an option loses with each slot


class StartOption(NamedTuple):
    """A job may start in this slot, and is worth so much then; `use`: its expected GPUs from there
    on.
    """

    job: Job
    slot: int
    worth: float
    use: Sequence[float]


class PlannedStarts(NamedTuple):
    """The order of a plan: a job that the program does not let start now stands in no line."""

    chances: Chances
    limit_s: float

    @property
    def anew(self) -> bool:
        return True

    def lineup(self, view: View, margin: float) -> Lineup:
        """Jobs of one priority are planned beside those of the ones before it."""
        cluster = view.cluster
        left = [float(_open_gpus(cluster))] * SLOTS
        lines = [
            (priority, self._line(view, jobs, left))
            for priority, jobs in by_priority(cluster).items()
        ]
        return lined_up(cluster, lines)

    def _line(self, view: View, jobs: list[Job], left: list[float]) -> list[Job]:
        """The jobs in line; takes what they are expected to use from `left`."""
        ranked = in_order(view, self.chances, jobs)
        firm = [job for job in ranked if job.steps and job.live_attempt is not None]
        for job in firm:
            _take(left, self._stays(view, job))
        stays = [self._stays(view, job) for job in ranked if _best_effort_runs(job)]
        waiting = [job for job in ranked if job.live_attempt is None]
        chosen = self._chosen(view, stays, waiting, left)
        if chosen is None:
            return ranked
        now = {option.job.job_id for option in chosen if not option.slot}
        for option in chosen:
            _take(left, option)
        for job in waiting:
            if job.job_id not in now and not _planned(chosen, job):
                start = next(self._starts(view, job))
                if _fits(left, start):
                    now.add(job.job_id)
                    _take(left, start)
        starts = [job for job in waiting if job.job_id in now]
        hopeful = [job for job in starts if self._hopes(view, job)]
        others = [job for job in starts if job not in hopeful]
        return [*firm, *hopeful, *[option.job for option in stays], *others]

    def _chosen(
        self, view: View, stays: list[StartOption], waiting: list[Job], left: list[float]
    ) -> list[StartOption] | None:
        """None: all may start, none can, or there was no answer."""
        running = sum(option.use[0] for option in stays)
        asked = sum(job.request.gpus for job in waiting)
        if not waiting or asked <= left[0] - running:
            return None
        if min(job.request.gpus for job in waiting) > left[0]:
            return None
        options = [*stays]
        for job in islice(waiting, MOST_JOBS):
            options += self._starts(view, job)
        return solved(options, left, self.limit_s)

    def _hopes(self, view: View, job: Job) -> bool:
        """Whether it takes GPUs from best-effort jobs: it may earn something by starting now."""
        expected = self.chances.of(job, view.now_s) if job.steps else None
        return bool(job.steps) and (expected is None or expected.reward > 0.0)

    def _stays(self, view: View, job: Job) -> StartOption:
        use = list(uses(job, self._left(view, job)))
        return StartOption(job, 0, 1.0 + job.request.gpus, use)

    def _starts(self, view: View, job: Job) -> Iterator[StartOption]:
        """In each slot, the first one first."""
        use = list(uses(job, self._left(view, job)))
        for slot in range(SLOTS):
            begin_s = view.now_s + slot * SLOT_S
            expected = self.chances.of(job, begin_s) if job.steps else None
            early = 1.0 - slot / (SLOTS + 1)
            worth = early if expected is None else expected.reward * (1.0 - slot * _LATER)
            yield StartOption(job, slot, worth or early, use[: SLOTS - slot])

    def _left(self, view: View, job: Job) -> list[float] | None:
        estimate_s, rest_s = job.duration_estimate_s, left_s(view.cluster, job, view.now_s)
        if estimate_s is None or rest_s is None:
            return None
        return self.chances.left_s(estimate_s, estimate_s - rest_s)


def solved(
    options: Sequence[StartOption], left: Sequence[float], limit_s: float
) -> list[StartOption] | None:
    """The best choice of options, at most one of each job; None: there was no answer."""
    count = len(options)
    jobs = dict.fromkeys(option.job.job_id for option in options)
    owners = {job_id: at for at, job_id in enumerate(jobs)}
    owner = [owners[option.job.job_id] for option in options]
    one = sparse.csr_array((np.ones(count), (owner, range(count))), shape=(len(owners), count))
    table = np.zeros((SLOTS, count))
    for at, option in enumerate(options):
        table[option.slot : option.slot + len(option.use), at] = option.use
    room = np.maximum(0.0, left)
    scale = np.maximum(1.0, room)[:, None]
    found = optimize.milp(
        -np.array([option.worth for option in options]),
        integrality=np.ones(count),
        bounds=optimize.Bounds(0, 1),
        constraints=[
            optimize.LinearConstraint(one, -np.inf, 1.0),
            optimize.LinearConstraint(sparse.csr_array(table / scale), -np.inf, room / scale[:, 0]),
        ],
        options={"time_limit": limit_s, "node_limit": MOST_NODES, "mip_rel_gap": GAP},
    )
    if found.x is None:
        return None
    return [option for option, share in zip(options, found.x, strict=True) if share > 0.5]


def uses(job: Job, left: Sequence[float] | None) -> Iterator[float]:
    """Its expected GPUs in each slot from its start on."""
    for slot in range(SLOTS):
        runs = 1.0 if left is None else sum(rest > slot * SLOT_S for rest in left) / len(left)
        yield job.request.gpus * runs


# --- helpers, in order of use ---------------------------------------------------------------------


def _open_gpus(cluster: Cluster) -> int:
    cluster.capacity.ready()
    pools = only_gpus(cluster.capacity.open)
    return sum(mask.bit_count() for pool in pools.values() for mask in pool.masks)


def _best_effort_runs(job: Job) -> bool:
    return not job.steps and job.live_attempt is not None


def _take(left: list[float], option: StartOption) -> None:
    for at, gpus in enumerate(option.use, option.slot):
        left[at] -= gpus


def _planned(chosen: Iterable[StartOption], job: Job) -> bool:
    return any(option.job is job for option in chosen)


def _fits(left: Sequence[float], start: StartOption) -> bool:
    return all(gpus <= free + 1e-6 for gpus, free in zip(start.use, left, strict=True))
