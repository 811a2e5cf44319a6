"""A profile as a message: what came from another process is read, or refused."""

from __future__ import annotations

import pytest

from dlq.v1 import master_profile_pb2 as wire
from dlq_common.daemon.profile_message import profile_bytes, profile_of
from dlq_common.daemon.stacks import FunctionPlace, StackCount, StackProfile, ThreadTime
from dlq_common.errors import InvalidRequest

OUTER, INNER = FunctionPlace("run", "a.py", 1), FunctionPlace("Core.tick", "b.py", 7)


def a_found_profile() -> StackProfile:
    return StackProfile(
        seconds=2.0,
        samples=94,
        missed=1,
        cpu_s=0.5,
        own_cpu_s=0.01,
        threads=[ThreadTime("loop", 94, 90, 0.4), ThreadTime("errand", 94, 94, 0.1)],
        stacks=[StackCount("loop", (OUTER, INNER), 3), StackCount("loop", (OUTER,), 1)],
        left_out=0,
    )


def test_a_profile_is_read_as_it_was_sent() -> None:
    profile = profile_of(profile_bytes(a_found_profile(), "it was late"))
    assert [one.name for one in profile.functions] == ["run", "Core.tick"]
    assert [list(one.function_indexes) for one in profile.stacks] == [[0, 1], [0]]
    assert [one.name for one in profile.threads] == ["loop", "errand"]
    assert (profile.sample_count, profile.ended_early) == (94, "it was late")


@pytest.mark.parametrize(
    "stack",
    [
        wire.ProfiledStack(function_indexes=[2]),
        wire.ProfiledStack(function_indexes=[0, -1]),
        wire.ProfiledStack(thread_index=2),
        wire.ProfiledStack(thread_index=-1),
    ],
)
def test_a_stack_that_names_what_is_not_there_is_refused(stack: wire.ProfiledStack) -> None:
    profile = wire.MasterProfile.FromString(profile_bytes(a_found_profile(), ""))
    profile.stacks.append(stack)
    with pytest.raises(InvalidRequest):
        profile_of(profile.SerializeToString())


def test_bytes_that_are_no_profile_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        profile_of(b"\xff\xff")
