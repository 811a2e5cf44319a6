"""How jobs leave their GPUs in a replay: at a boundary, with a reclaimed server, or a reserved
node.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.attempts.attempt_steps import Preempted, PreemptedLost, StopRequested
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.plan import Lapse, Resize
from dlq_master.model.transitions import StopCause
from dlq_master.policy.place.placement import Placement
from dlq_simulator.errors import SimulateError
from dlq_simulator.replay.events import Agenda, InstantKind
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.world.course import Course, Seconds

_MOST_LOSSES = 200  # of one job; more is no schedule


class Leaving:
    """Stops jobs, with their time to save. `reclaimed`: how many jobs lost lent servers."""

    __slots__ = ("_agenda", "_cluster", "_courses", "_settings", "reclaimed")

    def __init__(
        self,
        cluster: Cluster,
        courses: Mapping[JobId, Course],
        agenda: Agenda,
        settings: ReplaySettings,
    ) -> None:
        self._cluster = cluster
        self._courses = courses
        self._agenda = agenda
        self._settings = settings
        self.reclaimed = 0

    def lapse(self, lapse: Lapse | Resize, now_s: Seconds) -> None:
        """The lease ends, or goes on with other GPUs.

        A job that would end before its stop is left alone.
        """
        course = self._courses[lapse.key.job_id]
        if lapse.grace_s == 0:
            course.resizes += isinstance(lapse, Resize)
            course.stop(now_s)
            course.leave(now_s)
            return
        stop_s = max(now_s, lapse.at_s - self._save_s(course))
        if course.finish_s > stop_s:
            course.resizes += isinstance(lapse, Resize)
            self._stop(course, lapse.key, stop_s)

    def revoke(self, key: AttemptKey, now_s: Seconds) -> None:
        """The job's lent server is reclaimed: it saves, or is killed, and waits again."""
        self._stop(self._courses[key.job_id], key, now_s)
        self.reclaimed += 1

    def drained(self, key: AttemptKey, now_s: Seconds) -> None:
        """The job's node is reserved from now on: it saves, or is killed, and waits again."""
        self._stop(self._courses[key.job_id], key, now_s)

    def leave(self, key: AttemptKey, now_s: Seconds) -> None:
        """The job has saved, or is dead: free its GPUs."""
        course = self._courses[key.job_id]
        if self._saves(course):
            course.saved_s = course.done_s
            worked_s = course.done_s - self._cluster.jobs[key.job_id].worked_s
            drive.step_attempt(self._cluster, key, Preempted(worked_s=worked_s), now_s)
        else:
            drive.step_attempt(self._cluster, key, PreemptedLost(), now_s)
        course.leave(now_s)

    def throw_back(self, key: AttemptKey, saved_s: float, now_s: Seconds) -> None:
        """Kill a suspended job: it goes on from its last save, one each `saved_s`."""
        course = self._courses[key.job_id]
        if self._saves(course):
            course.fall_back(saved_s)
        else:
            course.lose()
        stop = StopRequested(cause=StopCause.PREEMPT, grace_s=0.0)
        drive.step_attempt(self._cluster, key, stop, now_s)
        worked_s = course.done_s - self._cluster.jobs[key.job_id].worked_s
        drive.step_attempt(self._cluster, key, Preempted(worked_s=worked_s), now_s)

    def _stop(self, course: Course, key: AttemptKey, at_s: Seconds) -> None:
        """Stop the job's progress; it leaves once it has saved."""
        course.stop(at_s)
        if not self._saves(course):
            course.lose()
            if course.preemptions >= _MOST_LOSSES:
                raise self._endless(course)
        self._agenda.foresee(at_s + self._save_s(course), InstantKind.LEAVE, *key)

    def _endless(self, course: Course) -> SimulateError:
        return SimulateError(
            f"the replay of {self._settings.policy.name!r} would not end",
            f"job {course.row.job_id!r} cannot save (checkpoint is no) and has lost all that it "
            f"did {course.preemptions} times",
            "choose a policy that lets such jobs run on, or preempt=free",
        )

    def _saves(self, course: Course) -> bool:
        return course.row.checkpoint or self._settings.free

    def _save_s(self, course: Course) -> Seconds:
        return self._settings.save_s if self._saves(course) else 0


def stranded(cluster: Cluster, placement: Placement) -> list[Job]:
    """Waiting jobs that all open nodes together could not hold."""
    cluster.capacity.ready()
    pools = cluster.capacity.open
    return [
        job
        for job in cluster.jobs.values()
        if job.waiting
        and not any(
            placement.find(pool, job.request.shape) for _, pool in job.request.shape.of_types(pools)
        )
    ]
