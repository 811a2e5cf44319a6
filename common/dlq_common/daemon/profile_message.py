"""A profile of a daemon as a message of the wire, and the check of one that came from elsewhere."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from dlq.v1 import master_profile_pb2 as wire
from dlq_common.daemon.stacks import FunctionPlace, StackProfile
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import to_duration


def profile_bytes(found: StackProfile, ended_early: str) -> bytes:
    """The encoded message of a daemon that has no turns."""
    message = profile_message(found)
    message.ended_early = ended_early
    return message.SerializeToString()


def profile_of(encoded: bytes) -> wire.MasterProfile:
    """The profile that another process took. InvalidRequest when it cannot be read, or when a stack
    names a thread or a function that is not there.
    """
    try:
        profile = wire.MasterProfile.FromString(encoded)
    except DecodeError:
        raise InvalidRequest("the profile cannot be read", field="data") from None
    functions, threads = len(profile.functions), len(profile.threads)
    for stack in profile.stacks:
        places = stack.function_indexes
        known = not places or (min(places) >= 0 and max(places) < functions)
        if not known or not 0 <= stack.thread_index < threads:
            raise InvalidRequest("a stack of the profile names what is not there", field="data")
    return profile


def profile_message(found: StackProfile) -> wire.MasterProfile:
    """The samples, each function and thread once."""
    threads = {one.name: place for place, one in enumerate(found.threads)}
    functions: dict[FunctionPlace, int] = {}
    stacks = [
        wire.ProfiledStack(
            thread_index=threads[one.thread],
            function_indexes=[functions.setdefault(it, len(functions)) for it in one.stack],
            sample_count=one.samples,
        )
        for one in found.stacks
    ]
    return wire.MasterProfile(
        took_duration=to_duration(found.seconds),
        sample_count=found.samples,
        missed_count=found.missed,
        cpu_duration=to_duration(found.cpu_s),
        overhead_duration=to_duration(found.own_cpu_s),
        threads=[
            wire.ProfiledThread(
                name=one.name,
                sample_count=one.samples,
                idle_count=one.idle,
                cpu_duration=to_duration(one.cpu_s),
            )
            for one in found.threads
        ],
        functions=[
            wire.ProfiledFunction(name=it.name, file=it.file, line=it.line) for it in functions
        ],
        stacks=stacks,
        left_out_count=found.left_out,
    )
