"""The loop's state of jobs beside the cluster. Only the next id is stored; the rest follows from
the jobs, or is heard anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.control.config import MasterConfig
from dlq_master.control.jobs.gates import Gates
from dlq_master.control.jobs.gates import build as gates_of
from dlq_master.control.jobs.recent import Recent
from dlq_master.control.jobs.retries import Retries
from dlq_master.control.jobs.retries import build as retries_of
from dlq_master.control.jobs.submit_rates import SubmitRates
from dlq_master.control.jobs.waits import Waits
from dlq_master.control.people.counts import JobCounts
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.timers import Timers
from dlq_master.store.batch import Loaded, MemoryWindow


@dataclass(slots=True)
class JobsState:
    """`submit_rates` limits how fast each user submits, `counts` how many jobs live at once."""

    submit_rates: SubmitRates
    recent: Recent  # ended jobs that are still in memory
    next_id: int = 1
    counts: JobCounts = field(default_factory=JobCounts)
    gates: Gates = field(default_factory=Gates)  # jobs that may not wait yet
    retries: Retries = field(default_factory=Retries)  # jobs that the cluster has failed
    stirred_groups: dict[JobId, None] = field(default_factory=dict)  # a member has moved
    waits: Waits = field(default_factory=Waits)  # how long jobs have waited, by reason
    beats: dict[JobId, Beat] = field(default_factory=dict)
    # attended jobs, and when their clients were last heard
    attended: dict[JobId, float] = field(default_factory=dict)
    limit_looks: Timers[JobId] = field(default_factory=Timers)  # jobs with time limits
    unknown_types: set[JobId] = field(default_factory=set)  # jobs whose GPU type no node has yet

    @classmethod
    def begin(cls, config: MasterConfig) -> JobsState:
        """The slice of an empty cluster."""
        rates = SubmitRates(config.jobs.submit_rate, config.jobs.submit_burst)
        counts = JobCounts(config.interactive.queue)
        return cls(submit_rates=rates, recent=Recent(window_of(config)), counts=counts)

    def restore(
        self, loaded: Loaded, cluster: Cluster, now_s: float, waits: Waits | None = None
    ) -> None:
        """Take over what is stored, and work out the rest from the jobs of `cluster`. `waits`: of
        exactly these jobs; None: they are worked out as well.
        """
        for job in loaded.jobs:  # of most jobs nothing is called: there may be 100,000
            if job.request.gpu_types is not None:
                self.note_unknown_type(cluster, job)
            if job.rules.attended:
                self.note_attended(job, now_s)
            if job.live_attempt is not None and job.time_limit_s is not None:
                self.limit_looks.set(job.job_id, now_s)
        self.gates = gates_of(cluster.jobs, now_s)
        self.retries = retries_of(cluster.jobs)
        self.stirred_groups = dict.fromkeys(cluster.groups)
        self.waits = waits or Waits(loaded.waited, cluster.jobs.values())
        ended = [job for job in loaded.jobs if job.end_time_s is not None]
        self.recent.enter(sorted(ended, key=lambda job: job.end_time_s or 0.0))
        self.recent.complete_from_s = loaded.complete_from_s
        self.next_id = max(loaded.last_job + 1, int(loaded.meta.get("next_job", "1")))

    def note_unknown_type(self, cluster: Cluster, job: Job) -> None:
        """Remember a job whose GPU type no registered node has: a node that joins may have it."""
        gpu_types = job.request.gpu_types
        if gpu_types is not None and not job.ended and not job.request.without_gpus:
            cluster.capacity.ready()
            if not cluster.capacity.total.keys() >= {*gpu_types}:
                self.unknown_types.add(job.job_id)

    def note_attended(self, job: Job, now_s: float) -> None:
        """Remember a job that lives only while its client says that it is there."""
        if job.rules.attended and not job.ended:
            self.attended[job.job_id] = now_s

    def forget(self, job_id: JobId) -> None:
        """Remove everything that was only kept for this ended job."""
        self.beats.pop(job_id, None)
        self.waits.forget(job_id)
        self.unknown_types.discard(job_id)


def window_of(config: MasterConfig) -> MemoryWindow:
    """The ended jobs that memory holds."""
    return MemoryWindow(float(config.retention.ended_kept), config.retention.ended_most)
