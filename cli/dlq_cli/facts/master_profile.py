"""The master's profile: shares of functions, and the formats that flame graph programs read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dlq.v1 import master_profile_pb2 as wire
from dlq_cli.facts.common import Facts, described, seconds

_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


class FunctionShare(NamedTuple):
    """A function of one thread: the shares of the thread's samples."""

    function: wire.ProfiledFunction
    own: float  # it was the innermost one
    total: float  # it was anywhere in the stack

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.function.file}:{self.function.line}"


def shares(profile: wire.MasterProfile, thread_index: int) -> list[FunctionShare]:
    """The functions of a thread, those with the largest own share first."""
    own: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for stack in profile.stacks:
        if stack.thread_index == thread_index and stack.function_indexes:
            own[stack.function_indexes[-1]] += stack.sample_count
            for place in set(stack.function_indexes):
                total[place] += stack.sample_count
    samples = profile.threads[thread_index].sample_count or 1
    found = [
        FunctionShare(profile.functions[place], own[place] / samples, count / samples)
        for place, count in total.items()
    ]
    return sorted(found, key=lambda one: (-one.own, -one.total, one.place))


def busy(thread: wire.ProfiledThread) -> float:
    """The share of a thread's samples in which it did not wait for work."""
    working = thread.sample_count - thread.idle_count
    return working / thread.sample_count if thread.sample_count else 0.0


def profile_facts(profile: wire.MasterProfile) -> Facts:
    """All but the stacks."""
    facts = _facts(profile)
    facts["threads"] = [
        {
            "thread": thread.name,
            "sample_count": thread.sample_count,
            "busy_ratio": round(busy(thread), 4),
            "cpu_s": seconds(thread.cpu_duration),
            "functions": [_share_facts(one) for one in shares(profile, index)],
        }
        for index, thread in enumerate(profile.threads)
    ]
    return facts


def folded(profile: wire.MasterProfile) -> str:
    """One line for each stack, as flamegraph.pl, inferno and speedscope read it: the thread and its
    functions, the outermost first, and the number of samples.
    """
    lines = (
        f"{';'.join([profile.threads[one.thread_index].name, *_frames(profile, one)])}"
        f" {one.sample_count}\n"
        for one in profile.stacks
    )
    return "".join(sorted(lines))


def speedscope(profile: wire.MasterProfile, name: str) -> str:
    """The same in the own format of speedscope.app, a profile for each thread."""
    frames = [{"name": it.name, "file": it.file, "line": it.line} for it in profile.functions]
    threads = [
        _speedscope_thread(thread.name, [one for one in profile.stacks if one.thread_index == at])
        for at, thread in enumerate(profile.threads)
    ]
    content = {
        "$schema": _SPEEDSCOPE,
        "name": name,
        "activeProfileIndex": 0,
        "exporter": "dlq",
        "shared": {"frames": frames},
        "profiles": [one for one in threads if one["samples"]],
    }
    return json.dumps(content, separators=(",", ":")) + "\n"


def _speedscope_thread(name: str, stacks: Iterable[wire.ProfiledStack]) -> Facts:
    found = list(stacks)
    weights = [one.sample_count for one in found]
    return {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [list(one.function_indexes) for one in found],
        "weights": weights,
    }


def _frames(profile: wire.MasterProfile, stack: wire.ProfiledStack) -> Iterator[str]:
    for place in stack.function_indexes:
        it = profile.functions[place]
        yield f"{it.name} ({it.file}:{it.line})".replace(";", ":")


def _share_facts(one: FunctionShare) -> Facts:
    return {
        "function": one.function.name,
        "file": one.function.file,
        "line": one.function.line,
        "self_ratio": round(one.own, 4),
        "total_ratio": round(one.total, 4),
    }


_facts = described(
    wire.MasterProfile,
    "took_s! sample_count missed_count cpu_s! overhead_s! ended_early? left_out_count turns"
    " slow_s! slow_count slow_turns",
    turns=described(wire.TurnBucket, "longest_s turn_count"),
    slow_turns=described(
        wire.SlowTurn,
        "begin_time decide_s! plan_s! persist_s! publish_s! stimuli job_count attempt_count"
        " node_count event_count command_count",
    ),
)
