"""The profile of the master as messages: sampled stacks, turns by duration, and slow turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1 import master_profile_pb2 as profile_wire
from dlq_common.daemon.profile_message import profile_message
from dlq_common.daemon.stacks import StackProfile
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.loop.meter import BUCKETS_S, Meter
from dlq_master.control.loop.slow_turns import SlowTurn


def profile_answer(meter: Meter) -> Callable[[StackProfile, str], bytes]:
    """A function that makes the last answer to a profile that begins now. It may run in another
    thread.
    """
    before = tuple(meter.turns)

    def answer(found: StackProfile, ended_early: str) -> bytes:
        message = profile_message(found)
        message.ended_early = ended_early
        counts = [now - then for now, then in zip(tuple(meter.turns), before, strict=True)]
        message.turns.extend(turn_buckets(counts))
        message.slow_duration.CopyFrom(to_duration(meter.slow.bound_s))
        message.slow_count = meter.slow.count
        message.slow_turns.extend(map(slow_turn_message, tuple(meter.slow.kept)))
        told = wire.ProfileMasterResponse(sample_count=found.samples, profile=message)
        return told.SerializeToString()

    return answer


def slow_turn_message(slow: SlowTurn) -> profile_wire.SlowTurn:
    """A slow turn for operators."""
    return profile_wire.SlowTurn(
        begin_time=to_timestamp(slow.began_s),
        decide_duration=to_duration(slow.spent_s["decide"]),
        plan_duration=to_duration(slow.spent_s["plan"]),
        persist_duration=to_duration(slow.spent_s["persist"]),
        publish_duration=to_duration(slow.spent_s["publish"]),
        stimuli=slow.stimuli,
        job_count=slow.jobs,
        attempt_count=slow.attempts,
        node_count=slow.nodes,
        event_count=slow.events,
        command_count=slow.commands,
    )


def turn_buckets(
    counts: Sequence[int], ends_s: Sequence[float] = BUCKETS_S
) -> Iterator[profile_wire.TurnBucket]:
    """The number of turns by duration; the last bucket is open."""
    for end_s, count in zip((*ends_s, None), counts, strict=True):
        longest = None if end_s is None else to_duration(end_s)
        yield profile_wire.TurnBucket(longest_duration=longest, turn_count=count)
