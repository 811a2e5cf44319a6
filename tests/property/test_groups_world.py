"""Stories of the core with groups: all members start in one plan, and none runs alone."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.attempts.groups import KnownMember, consequences
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import arrays, job_steps
from dlq_master.model.jobs.eligible import Array, GroupedMember, MemberEnds
from dlq_master.model.jobs.job import EndReason
from dlq_master.model.plan import Start
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from property.test_core_world import Story, story_of
from support.builders import a_job


class GroupStory(Story):
    """The same, where some jobs are members of groups."""

    @rule(
        gpus=st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=2, max_size=4),
        queues=st.lists(st.integers(0, 1), min_size=4, max_size=4),
        ends=st.lists(st.sampled_from(MemberEnds), min_size=4, max_size=4),
    )
    def a_group(self, gpus: list[int], queues: list[int], ends: list[MemberEnds]) -> None:
        group_id = JobId(self.next_id)
        members = tuple(GroupedMember(f"m{index}", 1, ends[index]) for index in range(len(gpus)))
        group = Array(group_id, len(gpus), 0, 0, len(gpus) - 1, 1, members)
        for index, width in enumerate(gpus):
            job = a_job(
                self.next_id + 1 + index,
                request=Request(gpus=width),
                queue=f"q{queues[index]}",
                user="u0",
                priority_base=queues[index],
                array=group,
                array_index=index,
            )
            self.world.submit(job)
        self.next_id += 1 + len(gpus)
        self.decided()

    @rule(pick=st.integers(0, 99))
    def a_failure(self, pick: int) -> None:
        attempt = self.one_of({AttemptState.RUNNING}, pick)
        if attempt is not None:
            failed = attempt_steps.Failed(reason=EndReason.USER_ERROR, exit_code=1)
            drive.step_attempt(self.world.cluster, attempt.key, failed, self.world.now_s)
            self.decided()

    # --- what must hold -------------------------------------------------------------------------

    def decided(self) -> None:
        self.follow()
        super().decided()
        self.follow()
        for group_id in self.world.cluster.groups:
            known = self.known(group_id)
            assert consequences(known) == []
            living = [it for it in known if not it.job.ended]
            assert not any(it.runs_on for it in living) or all(it.runs_on for it in living), living

    def follow(self) -> None:
        """What the master does in each turn; twice the same asks for nothing more."""
        cluster, now_s = self.world.cluster, self.world.now_s
        for group_id in [*cluster.groups]:
            for job, ends, why in consequences(self.known(group_id)):
                assert why
                if ends:
                    drive.step_job(cluster, job.job_id, job_steps.Cancelled(), now_s)
                elif (attempt := cluster.live_attempt(cluster.jobs[job.job_id])) is not None:
                    cause, grace_s = StopCause.PREEMPT, stop_grace_s(attempt, job)
                    stop = attempt_steps.StopRequested(cause=cause, grace_s=grace_s, detail=why)
                    drive.step_attempt(cluster, attempt.key, stop, now_s)

    def known(self, group_id: JobId) -> list[KnownMember]:
        cluster = self.world.cluster
        first = next(iter(cluster.groups.get(group_id, ())), None)
        group = None if first is None else cluster.jobs[first].group
        jobs = () if group is None else arrays.tasks(cluster.jobs.get, group)
        return [KnownMember(job, cluster.live_attempt(job)) for job in jobs]

    def compare(self, changes: tuple[object, ...]) -> None:
        """The obvious planner knows no groups. A start of a member is that of all that live."""
        cluster = self.world.cluster
        starts = {change.job_id for change in changes if isinstance(change, Start)}
        for job_id in starts:
            group = cluster.jobs[job_id].group
            assert group is None or cluster.groups[group.array_id].keys() <= starts


TestGroupsFifo = story_of(GroupStory, "fifo")
TestGroupsBestEffort = story_of(GroupStory, "best-effort", place="spread")
TestGroupsDlq = story_of(GroupStory, "dlq")
TestGroupsSrtf = story_of(GroupStory, "srtf", place="consolidate")
TestGroupsLas = story_of(GroupStory, "tiresias-las", thresholds="50,400", starve_limit_s="900")
TestGroupsQuotas = story_of(GroupStory, "yarn-cs", quota="q0:0.6,q1:0.4")
