"""What must hold of groups, and of GPUs that are kept after a lost node: I13 and I14.

It looks at the rows after each batch. The consequences of a step are in the same batch; those of a
plan come in the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dlq_master.model.attempts.attempt import LIVE, Attempt, AttemptState
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import MemberEnds
from dlq_master.model.jobs.job import ENDED, HoldKind, Job, JobState
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.store.batch import Batch

if TYPE_CHECKING:
    from world.judging.judge import Judge

BEFORE_THE_BARRIER = (AttemptState.ASSIGNED, AttemptState.PREPARING)
MOST_BATCHES = 4  # of one master, until a consequence has followed
WAITS_S = 60.0  # a small job that could have GPUs of an ended claim has them by then


class Parties:
    """Of all groups and all claims. `keep_s`: how long a claim may last at most."""

    def __init__(self, judge: Judge, jobs: Mapping[JobId, Job], keep_s: float) -> None:
        self._judge = judge
        self._jobs = jobs
        self._keep_s = keep_s
        self._members: dict[JobId, list[JobId]] = {}
        self._last: dict[JobId, Attempt] = {}  # the last attempt of each member
        self._keeping: dict[JobId, None] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._torn: dict[tuple[JobId, str], tuple[str, int]] = {}
        self._passed: dict[JobId, float] = {}  # since when a small job has been kept from GPUs

    def committed(
        self, batch: Batch, writer: str, now_s: float, busy: Mapping[tuple[str, int], AttemptKey]
    ) -> None:
        """A batch is on disk. `busy`: GPUs of live attempts; `now_s`: virtual."""
        stirred: dict[JobId, None] = {}
        for node in batch.nodes:
            self._nodes[node.node_id] = node
        for job in batch.jobs:
            self._job(job)
            if job.group is not None:
                members = self._members.setdefault(job.group.array_id, [])
                if job.job_id not in members:
                    members.append(job.job_id)
                stirred[job.group.array_id] = None
        begun = {job_id for attempt in batch.attempts if (job_id := self._begun(attempt, stirred))}
        for group_id in stirred:
            self._starts(group_id, begun)
        for group_id in sorted({*stirred, *(group_id for group_id, _ in self._torn)}):
            self._follows(group_id, writer)
        if self._keeping:
            self._given_back(batch, now_s, busy)

    def begins(self, key: AttemptKey) -> None:
        """I13: a process begins, so all members have come to the barrier."""
        job = self._jobs.get(key.job_id)
        if job is None or job.group is None:
            return
        for other in self._living(job.group.array_id):
            last = self._last.get(other.job_id)
            ready = last is not None and last.state not in BEFORE_THE_BARRIER
            words = f"{key} begins while {other.name} of its group is not ready"
            self._judge.hold(ready, f"I13: {words}")

    def awaits_a_person(self, job: Job) -> bool:
        """Whether it waits for a member of its group that somebody has to release."""
        if job.group is None or job.live_attempt is not None:
            return False
        held = [it for it in self._living(job.group.array_id) if it.state is JobState.HELD]
        return any(it.hold is not HoldKind.PAUSED for it in held)

    def last(self) -> None:
        """All is at rest."""
        for group_id in self._members:
            for what in self._lacking(group_id):
                self._judge.broken(f"I13: {what}")

    # --- helpers --------------------------------------------------------------------------------

    def _living(self, group_id: JobId) -> list[Job]:
        jobs = [self._jobs[it] for it in self._members.get(group_id, ())]
        return [job for job in jobs if job.state not in ENDED]

    def _job(self, job: Job) -> None:
        kept, name = job.kept, f"job {job.job_id}"
        if kept is None:
            self._keeping.pop(job.job_id, None)
            return
        waits = job.state is JobState.QUEUED and job.live_attempt is None
        self._judge.hold(waits, f"I14: {name} keeps GPUs, and is {job.state}")
        since_s = job.queued_since_s
        within = since_s is not None and kept.until_s <= since_s + self._keep_s + 0.001
        self._judge.hold(within, f"I14: {name} keeps GPUs for longer than {self._keep_s:g} s")
        if job.job_id not in self._keeping:
            self._judge.world_saw(f"GPUs of a {'group' if job.group else 'gang'} were kept")
        self._keeping[job.job_id] = None
        group = job.group
        for other in () if group is None else self._members.get(group.array_id, ()):
            theirs = self._jobs[other].kept
            one = theirs is None or theirs.until_s == kept.until_s
            self._judge.hold(one, f"I14: {name} and job {other} of its group keep GPUs apart")

    def _begun(self, attempt: Attempt, stirred: dict[JobId, None]) -> JobId | None:
        """The member of a group whose new attempt this is."""
        job_id = attempt.key.job_id
        job, before = self._jobs.get(job_id), self._last.get(job_id)
        if job is None or job.group is None:
            return None
        stirred[job.group.array_id] = None
        if before is None or before.key.number <= attempt.key.number:
            self._last[job_id] = attempt
        return job_id if before is None or before.key.number < attempt.key.number else None

    def _starts(self, group_id: JobId, begun: set[JobId]) -> None:
        """I13: all members that have not ended begin in one commit."""
        living = self._living(group_id)
        if not any(job.job_id in begun for job in living):
            return
        late = [job.name for job in living if job.job_id not in begun]
        self._judge.hold(not late, f"I13: group {group_id} starts without {late}")
        self._judge.world_saw("a group started")
        if any(job.attempts > 1 for job in living):
            self._judge.world_saw("a group started again")

    def _follows(self, group_id: JobId, writer: str) -> None:
        """I13: what has to follow for the others is there soon."""
        lacking = {*self._lacking(group_id)}
        for one in [it for it in self._torn if it[0] == group_id and it[1] not in lacking]:
            del self._torn[one]
        for what in lacking:
            by, batches = self._torn.get((group_id, what), (writer, 0))
            batches = batches + 1 if by == writer else 1
            self._torn[group_id, what] = writer, batches
            self._judge.hold(batches <= MOST_BATCHES, f"I13: {what}")

    def _lacking(self, group_id: JobId) -> Iterator[str]:
        jobs = [self._jobs[it] for it in self._members[group_id]]
        living = [job for job in jobs if job.state not in ENDED]
        over = any(map(_ends_all, jobs))
        if over and living:
            yield f"group {group_id} is over, and {living[0].name} goes on"
        lives = [job for job in living if self._runs(job)]
        away = [job for job in living if job.live_attempt is None]
        if lives and away:
            yield f"{lives[0].name} of group {group_id} runs, and {away[0].name} does not"

    def _runs(self, job: Job) -> bool:
        last = self._last.get(job.job_id)
        return last is not None and last.state in LIVE and last.stop_cause is None

    def _given_back(
        self, batch: Batch, now_s: float, busy: Mapping[tuple[str, int], AttemptKey]
    ) -> None:
        """I14: when a claim is over, a job of one GPU does not wait for GPUs of it any more.

        The master's time is that of the events of the batch.
        """
        if not batch.events:
            return
        told_s = max(event.time_s for event in batch.events)
        over = [
            job
            for job_id in self._keeping
            if (job := self._jobs[job_id]).kept is not None and job.kept.until_s + 5.0 < told_s
        ]
        free = any(self._is_free(job, busy) for job in over)
        if over:
            self._judge.world_saw("a claim ran out")
        if not free:
            self._passed.clear()
            return
        for job in self._jobs.values():
            if not _takes_anything(job):
                self._passed.pop(job.job_id, None)
                continue
            since_s = self._passed.setdefault(job.job_id, now_s)
            words = f"job {job.job_id} waits beside free GPUs of a claim that is over"
            self._judge.hold(now_s - since_s < WAITS_S, f"I14: {words}")

    def _is_free(self, job: Job, busy: Mapping[tuple[str, int], AttemptKey]) -> bool:
        assert job.kept is not None
        for slot in job.kept.allocation.slots:
            node = self._nodes.get(slot.node_id)
            if node is None or node.state is not NodeState.UP or node.flags or node.conditions:
                continue
            if any((str(slot.node_id), gpu) not in busy for gpu in slot.gpu_indices):
                return True
        return False


def _ends_all(job: Job) -> bool:
    """Whether this member's end is that of the group."""
    if job.state not in ENDED or job.group is None:
        return False
    ends = job.group.member(job.array_index)[0].ends
    if job.state is JobState.COMPLETED:
        return ends is MemberEnds.ALL
    return ends is not MemberEnds.ALONE


def _takes_anything(job: Job) -> bool:
    small = job.request.gpus == 1 and job.array is None and not job.steps and not job.depends
    return small and job.waiting and not job.failed_nodes
