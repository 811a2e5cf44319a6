"""How long a job has waited for each reason, as messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlq.v1 import job_pb2
from dlq_common.text.wire import to_duration
from dlq_master.control.jobs.waits import RUNS
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.model.why import Reason
from dlq_master.rpc.jobs.visible import hides_others, names_others
from dlq_master.store.tables.tenants import Spent, Waited


def wait_shares(waited: Waited | None) -> Iterator[job_pb2.WaitShare]:
    """The present reasons first, then those that held for longest."""
    if waited is None:
        return
    now = {word: place for place, word in enumerate(waited.now)}

    def place(one: Spent) -> tuple[int, float]:
        return now.get(one.code, len(now)), -one.held_s

    for one in sorted(waited.spent, key=place):
        if one.code != RUNS:
            code, _, subject = one.code.partition(" ")
            yield job_pb2.WaitShare(
                code=code,
                subject=subject,
                spent_duration=to_duration(one.held_s),
                main_duration=to_duration(one.main_s),
                now=one.code in now,
            )


def with_times(
    reasons: Iterable[Reason], messages: Iterable[job_pb2.WaitReason], waited: Waited | None
) -> Iterator[job_pb2.WaitReason]:
    """Messages of reasons, each with the time for which it has held."""
    spent = {} if waited is None else {one.code: one.held_s for one in waited.spent}
    for reason, message in zip(reasons, messages, strict=False):  # an ended job has no message
        held_s = spent.get(reason.kind.word)
        if held_s is not None:
            message.spent_duration.CopyFrom(to_duration(held_s))
        yield message


def with_owners(
    messages: Iterable[job_pb2.WaitReason], read: Published, caller: Caller
) -> Iterator[job_pb2.WaitReason]:
    """The same messages, with the users of the jobs in the way if the caller may know them.

    A caller for whom other users' jobs do not exist does not get their ids either.
    """
    names, hidden = names_others(read, caller), hides_others(read, caller)
    for message in messages:
        if hidden:
            own = [one for one in message.blocking_job_ids if _owns(read, caller, one)]
            message.ClearField("blocking_job_ids")
            message.blocking_job_ids.extend(own)
        if names:
            owners = (read.owner(JobId(int(job_id))) for job_id in message.blocking_job_ids)
            message.blocking_users.extend("" if owner is None else owner.user for owner in owners)
        yield message


def _owns(read: Published, caller: Caller, job_id: str) -> bool:
    owner = read.owner(JobId(int(job_id)))
    return owner is not None and caller.owns(owner)
