"""For how long a job has waited for what, as messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlq.v1 import job_pb2
from dlq_common.wire import to_duration
from dlq_master.control.waits import RUNS
from dlq_master.store.tenants import Spent, Waited


def wait_shares(waited: Waited | None) -> Iterator[job_pb2.WaitShare]:
    """What holds now first, then what has held for longest."""
    if waited is None:
        return
    now = {code: place for place, code in enumerate(waited.now)}

    def place(one: Spent) -> tuple[int, float]:
        return now.get(one.code, len(now)), -one.held_s

    for one in sorted(waited.spent, key=place):
        if one.code != RUNS:
            yield job_pb2.WaitShare(
                code=one.code,
                spent_duration=to_duration(one.held_s),
                main_duration=to_duration(one.main_s),
                now=one.code in now,
            )


def with_times(
    reasons: Iterable[job_pb2.WaitReason], waited: Waited | None
) -> Iterator[job_pb2.WaitReason]:
    """The reasons, each with how long it has held."""
    spent = {} if waited is None else {one.code: one.held_s for one in waited.spent}
    for reason in reasons:
        if reason.code in spent:
            reason.spent_duration.CopyFrom(to_duration(spent[reason.code]))
        yield reason
