"""Everything the loop owns between turns: the cluster, and one slice for each room of `control`.

Only the loop's thread touches it. A slice lies in the `state` module of the room that owns it, and
says there what of it is stored.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from dlq_master.control.attempts.bookkeeping import Bookkeeping
from dlq_master.control.attempts.idleness import Idleness
from dlq_master.control.attempts.stalls import Stalls
from dlq_master.control.attempts.state import AttemptsState
from dlq_master.control.attempts.stragglers import Stragglers
from dlq_master.control.config import MasterConfig
from dlq_master.control.deadlines.state import DeadlinesState
from dlq_master.control.forecast.state import ForecastState
from dlq_master.control.jobs.state import JobsState
from dlq_master.control.jobs.waits import Waits
from dlq_master.control.loans.state import SWITCH, LoanState, read_switch
from dlq_master.control.machines.state import MachinesState
from dlq_master.control.nodes.state import NodesState
from dlq_master.control.people.queues import in_order, priority_base
from dlq_master.control.people.state import PeopleState
from dlq_master.control.placement import usage
from dlq_master.control.placement.state import PlacementState
from dlq_master.control.read_model.state import JournalState
from dlq_master.control.read_model.tally import CountedJobs
from dlq_master.control.reservations.state import ReservationsState
from dlq_master.control.trials.state import TrialsState
from dlq_master.model.attempts.costs import StopCosts
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms
from dlq_master.policy.policy import Policy
from dlq_master.policy.sensitivity.traffic_estimates import TrafficEstimates
from dlq_master.store.batch import COPY, TAUGHT, Loaded
from dlq_master.store.tables.accounts import Levels
from dlq_master.store.tables.chosen_policy import Chosen

# More than a cluster can have named between a backup and the loss of its database.
_LOST_EPOCHS = 1_000
_LOST_JOBS = 1_000_000
_LOST_EVENTS = 100_000_000


class BuiltAhead(NamedTuple):
    """The parts of a state whose making takes a look at each job. They are of exactly the rows that
    are loaded (dlq_master/ahead.py).
    """

    policy: Policy
    cluster: Cluster
    trials: TrialsState
    waits: Waits
    counted: CountedJobs


@dataclass(slots=True)
class State:
    """The working state: the cluster with its indexes, and the slices of the rooms around it.

    `chosen_policy`: the policy that decides; None: that of the configuration. `counted_jobs`: for
    the first readers; None: they count.
    """

    config: MasterConfig
    terms: Terms
    policy: Policy
    cluster: Cluster
    started_s: float  # of this master
    epoch: int
    chosen_policy: InitVar[Chosen | None] = None
    jobs: JobsState = field(init=False)
    attempts: AttemptsState = field(init=False)
    nodes: NodesState = field(init=False)
    placement: PlacementState = field(init=False)
    trials: TrialsState = field(init=False)
    deadlines: DeadlinesState = field(default_factory=DeadlinesState)
    forecast: ForecastState = field(default_factory=ForecastState)
    reservations: ReservationsState = field(default_factory=ReservationsState)
    loans: LoanState = field(default_factory=LoanState)
    machines: MachinesState = field(default_factory=MachinesState)
    people: PeopleState = field(default_factory=PeopleState)
    journal: JournalState = field(default_factory=JournalState)
    loop_lag_s: float = 0.0
    disk_full: bool = False
    frozen: bool = False  # nodes that are silent just now are not given up
    counted_jobs: CountedJobs | None = None

    def __post_init__(self, chosen_policy: Chosen | None) -> None:
        scheduler = self.config.scheduler
        filed = Chosen(scheduler.policy, dict(scheduler.settings), "", self.started_s)
        self.placement = PlacementState(chosen_policy or filed)
        self.jobs = JobsState.begin(self.config)
        self.attempts = AttemptsState(
            Bookkeeping(Levels(self.started_s, {})),
            Idleness(self.config.idle_rules()),
            Stalls(self.config.stall.rule(), self.config.first_step_rule()),
            Stragglers(self.config.straggler.rule()),
        )
        self.nodes = NodesState.begin(self.config)
        self.trials = TrialsState(TrafficEstimates(self.config.profiler.bytes_per_s))

    def forget(self, job_id: JobId) -> None:
        """Remove an ended job from memory, with everything that was only kept for it."""
        self.cluster.forget(job_id)
        self.jobs.forget(job_id)
        self.trials.forget(job_id)


def restore(state: State, loaded: Loaded, ahead: BuiltAhead | None = None) -> None:
    """Fill a fresh state with what was loaded. Every silence starts now: leases were granted
    now. `ahead`: made of the same before, with the state's own cluster.
    """
    if ahead is None:
        restore_cluster(state.cluster, state.trials, state.config, loaded)
    else:
        state.trials, state.counted_jobs = ahead.trials, ahead.counted
        state.jobs.counts = ahead.counted.counts
    cluster, now_s = state.cluster, state.started_s
    state.jobs.restore(loaded, cluster, now_s, None if ahead is None else ahead.waits)
    state.attempts.restore(loaded, cluster, now_s)
    state.nodes.restore(loaded, now_s)
    state.deadlines.restore(loaded.jobs)
    state.forecast.restore(loaded, cluster)
    state.reservations.restore(loaded)
    state.machines.restore(loaded, cluster, now_s)
    state.people.restore(loaded)
    state.journal.restore(loaded)
    state.loans.off = read_switch(loaded.meta.get(SWITCH))
    if loaded.meta.get(COPY, "no") == "yes":
        _leap(state)


def first_meta(state: State) -> dict[str, str]:
    """Facts that must be on disk before this master says anything: it never says them a second
    time.
    """
    return {
        "epoch": str(state.epoch),
        "next_job": str(state.jobs.next_id),
        COPY: "no",
        TAUGHT: "yes",
    }


def restore_cluster(
    cluster: Cluster, trials: TrialsState, config: MasterConfig, loaded: Loaded
) -> None:
    """Nodes, jobs and attempts, and what was learned before."""
    usage.restore(cluster, loaded.meta.get(usage.USAGE))
    for node in loaded.nodes:
        cluster.put_node(node)
    trials.restore(loaded, cluster)
    if TAUGHT not in loaded.meta:  # by an earlier version
        for job in (*loaded.completed, *loaded.jobs):
            cluster.recall(job)
    costs, cluster.costs = cluster.costs, StopCosts()  # these jobs have taught theirs
    places = queue_places(config)
    for job in loaded.jobs:
        cluster.put_job(as_restored(job, trials, places))
    for attempt in loaded.attempts:
        cluster.put_attempt(attempt)
    cluster.costs = costs
    cluster.take_touched()  # all of it is on disk


def queue_places(config: MasterConfig) -> dict[str, int]:
    """The present order of the queues."""
    return {name: place for place, name in enumerate(in_order(config))}


def as_restored(job: Job, trials: TrialsState, places: Mapping[str, int]) -> Job:
    """A loaded job as a master begins with it. The queues may have another order by now, and
    recordings may tell how the job communicates.
    """
    place = places.get(job.queue)
    base = job.priority_base if place is None else priority_base(place, job.nice)
    if base != job.priority_base:
        job = job._replace(priority_base=base)
    return job if job.ended else trials.with_traffic(job)


# --- helpers, in order of use ---------------------------------------------------------------------


def _leap(state: State) -> None:
    """The database is a copy of the past: leave out the names that were given after it was made.

    Agents still run, and remember, jobs that the copy does not know. A second job of that number,
    or a second fence (epoch, attempt), would be taken for the first.
    """
    state.epoch += _LOST_EPOCHS
    state.jobs.next_id += _LOST_JOBS
    state.journal.next_sequence += _LOST_EVENTS
