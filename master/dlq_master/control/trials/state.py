"""The loop's state of measurements: steps that jobs reported, recordings of traffic, and the rows
of what was learned. Recordings and these rows are stored; steps are reported anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.learned import LearnedRows
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.policy.sensitivity.traffic_estimates import TrafficEstimates
from dlq_master.policy.trial.steps import Track
from dlq_master.store.batch import Loaded


@dataclass(slots=True)
class TrialsState:
    """`work_by_steps_s`: run time of all of a job's work, by its own steps, in seconds.
    `elastic_tracks`: steps of elastic jobs, with the GPU type that made them. `paced`: the GPU type
    on which a job has told its pace, also when that is not kept any more.
    """

    traffic: TrafficEstimates  # how jobs communicate
    tracks: dict[JobId, Track] = field(default_factory=dict)
    work_by_steps_s: dict[JobId, float] = field(default_factory=dict)
    elastic_tracks: dict[JobId, tuple[str, Track]] = field(default_factory=dict)
    paced: dict[JobId, str] = field(default_factory=dict)
    next_look: int = 0  # the place, among all attempts, of the first one of the next look
    learned: LearnedRows = field(default_factory=LearnedRows)  # what of the cluster is in rows

    def restore(self, loaded: Loaded, cluster: Cluster) -> None:
        """Take over what is stored. `cluster` learns the slowdowns that recordings show."""
        self.learned.restore(cluster, loaded.lessons)
        for recording in loaded.recordings:
            run = self.traffic.put(recording)
            if run is not None:
                cluster.slowdowns.add(run)

    def with_traffic(self, job: Job) -> Job:
        """The job with the newest estimate of how it communicates."""
        estimate = self.traffic.of(job)
        if estimate is None or estimate.profile == job.profile:
            return job
        return job._replace(profile=estimate.profile)

    def forget(self, job_id: JobId) -> None:
        """Remove everything that was only kept for this ended job."""
        self.tracks.pop(job_id, None)
        self.work_by_steps_s.pop(job_id, None)
        self.elastic_tracks.pop(job_id, None)
        self.paced.pop(job_id, None)
