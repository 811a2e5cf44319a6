"""Differences between two specs or two attempts, key by key; values of variables are never
shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dlq.v1 import job_pb2
from dlq_cli.facts.common import seconds
from dlq_cli.facts.job import attempt_facts, spec_facts

# Different in any two attempts, and nothing that one would look for.
_ALWAYS_DIFFERENT = frozenset(
    {
        "attempt", "epoch", "term_end_time", "hold_until_time", "assign_time", "start_time",
        "end_time",
    }
)  # fmt: skip
HIDDEN = "(another value, not shown)"


class Difference(NamedTuple):
    """One key; None where a side does not have it."""

    key: str
    left: Any
    right: Any


def spec_differences(left: job_pb2.JobSpec, right: job_pb2.JobSpec) -> list[Difference]:
    """The keys in which two specs differ. Variables that differ in value only are given by name."""
    facts = [_flat({**spec_facts(spec), "environment": None}) for spec in (left, right)]
    return [
        *_different(*facts),
        *_variables(left.environment, right.environment),
    ]


def attempt_differences(left: job_pb2.Attempt, right: job_pb2.Attempt) -> list[Difference]:
    """How two attempts went differently: where, how long, and how they ended."""
    return _different(_flat(_told(left)), _flat(_told(right)))


def script_lines(left: str, right: str) -> list[str]:
    """A unified diff of two scripts."""
    return list(difflib.unified_diff(left.splitlines(), right.splitlines(), lineterm="", n=2))[2:]


def _told(attempt: job_pb2.Attempt) -> dict[str, Any]:
    facts = {
        key: value for key, value in attempt_facts(attempt).items() if key not in _ALWAYS_DIFFERENT
    }
    slots = facts.pop("slots")
    facts["slots"] = [
        f"{slot['node_id']}[{','.join(map(str, slot['gpu_indexes']))}]" for slot in slots
    ]
    ended = attempt.HasField("start_time") and attempt.HasField("end_time")
    facts["run_time_s"] = (
        round(_instant(attempt.end_time) - _instant(attempt.start_time), 3) if ended else None
    )
    for rank in facts["ranks"]:
        rank.pop("node_id", None)  # the slots say it
    return facts


def _instant(timestamp: Any) -> float:
    return float(seconds(timestamp))


def _different(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference(key, left.get(key), right.get(key))
        for key in dict.fromkeys([*left, *right])
        if left.get(key) != right.get(key)
    ]


def _variables(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*left, *right}):
        key = f"environment.{name}"
        if name not in right:
            yield Difference(key, "(set)", None)
        elif name not in left:
            yield Difference(key, None, "(set)")
        elif left[name] != right[name]:
            yield Difference(key, "(set)", HIDDEN)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys, and lists of tables by position."""
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            for number, one in enumerate(value):
                flat |= _flat(one, f"{prefix}{key}.{number}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
