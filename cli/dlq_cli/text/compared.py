"""A question to the twin and its answer, in words: the cluster as it is, and as it would be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from dlq.v1 import forecast_pb2, job_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq_cli.output.render import Cell, OutputLook, age
from dlq_cli.text.foreseen import short_range
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import expand_hostlist
from dlq_common.text.units import parse_span
from dlq_common.text.wire import from_timestamp, to_duration

_NODES = re.compile(r"(\d{1,5})x(\d{1,2})(?::(\S{1,64}))?", re.ASCII)
_JOB = re.compile(r"(\d{1,6}):([^:\s]{1,32})(?::([^:\s]{1,32}))?", re.ASCII)
_NEVER_S = float("inf")
_FULL_REWARD = 100.0
MOVED = [Cell("JOB_ID", right=True), Cell("START"), Cell("START_THEN"), Cell("DEADLINE")]


class OtherWorld(NamedTuple):
    """The changed assumption, as the flags of `dlq what-if` say it."""

    add_nodes: Sequence[str] = ()
    drain: Sequence[str] = ()
    lose: Sequence[str] = ()
    add_job: Sequence[str] = ()
    policy: str = ""
    settings: Sequence[str] = ()


def question(asked: OtherWorld) -> wire.CompareForecastsRequest:
    """The request to the master. InvalidRequest names the flag that makes no sense."""
    return wire.CompareForecastsRequest(
        added_nodes=[_added(text) for text in asked.add_nodes],
        closed_node_ids=[name for text in asked.drain for name in _hosts("--drain", text)],
        lost_node_ids=[name for text in asked.lose for name in _hosts("--lose", text)],
        added_jobs=[_job(text) for text in asked.add_job],
        policy=asked.policy,
        policy_settings=dict(_setting(text) for text in asked.settings),
    )


def command_of(asked: OtherWorld) -> str:
    """The command that asks the same."""
    flags = [
        *(("--add-nodes", text) for text in asked.add_nodes),
        *(("--drain", text) for text in asked.drain),
        *(("--lose", text) for text in asked.lose),
        *(("--add-job", text) for text in asked.add_job),
        *((("--policy", asked.policy),) if asked.policy else ()),
        *(("--set", text) for text in asked.settings),
    ]
    return shlex.join(["dlq", "what-if", *(word for flag in flags for word in flag)])


def summary(answer: wire.CompareForecastsResponse) -> tuple[tuple[str, str], ...]:
    """How many jobs start earlier or later, and how many deadlines are kept."""
    at_s = from_timestamp(answer.estimate_time)
    waiting = [one for one in answer.starts if _waits(one)]
    now = [_likely_s(one.start) for one in waiting]
    then = [_likely_s(one.other_start) for one in waiting]
    gains = [gain_s(one, at_s) for one in answer.starts]
    due = [one for one in answer.starts if one.HasField("due_time") and not _is_new(one)]
    kept_now, kept_then = sum(_kept(one, one.end) for one in due), sum(
        _kept(one, one.other_end) for one in due
    )  # fmt: skip
    return (
        ("jobs that wait", str(len(waiting))),
        ("start earlier", str(sum(gain < 0 for gain in gains))),
        ("start later", str(sum(gain > 0 for gain in gains))),
        ("wait, median", f"{_median(now, at_s)} now, {_median(then, at_s)} then" if now else ""),
        ("deadlines kept", f"{kept_now} now, {kept_then} then, of {len(due)}" if due else ""),
    )


def moved_rows(answer: wire.CompareForecastsResponse, look: OutputLook) -> list[list[str]]:
    """The jobs for which anything changes, in the columns MOVED; the greatest gain first."""
    at_s = from_timestamp(answer.estimate_time)
    rows = sorted(answer.starts, key=lambda one: gain_s(one, at_s))
    return [_row(one, look) for one in rows if gain_s(one, at_s) or _is_new(one) or _turns(one)]


def gain_s(one: wire.ComparedStart, at_s: float) -> float:
    """Below 0: it starts earlier by this time. A job that runs now starts again, and loses that.
    `at_s`: the instant of the estimate.
    """
    if _is_new(one) or not (one.HasField("start") or one.HasField("other_start")):
        return 0.0
    now_s = at_s if one.running and not one.HasField("start") else _likely_s(one.start)
    then_s = _likely_s(one.other_start)
    return 0.0 if now_s == then_s else then_s - now_s


# --- helpers, in order of use ---------------------------------------------------------------------


def _added(text: str) -> wire.AddedNodes:
    found = _NODES.fullmatch(text)
    if not found:
        raise InvalidRequest(
            f"--add-nodes: {text[:64]!r} is no number of nodes",
            field="--add-nodes",
            hint="write 4x8 (nodes x GPUs), or 4x8:h100-80gb",
        )
    return wire.AddedNodes(
        node_count=int(found[1]), gpu_count=int(found[2]), gpu_type=found[3] or ""
    )


def _hosts(flag: str, text: str) -> Sequence[str]:
    try:
        return expand_hostlist(text)
    except ValueError as error:
        raise InvalidRequest(f"{flag}: {error}", field=flag) from None


def _job(text: str) -> job_pb2.JobSpec:
    """A job of so many GPUs, its run time, and perhaps its deadline."""
    found = _JOB.fullmatch(text)
    if not found:
        raise InvalidRequest(
            f"--add-job: {text[:64]!r} is no job",
            field="--add-job",
            hint="write 8:3h (GPUs and run time), or 8:3h:12h (and a deadline)",
        )
    spec = job_pb2.JobSpec(name="what-if", command=["true"])
    spec.resources.gpu_count = int(found[1])
    spec.run_estimate_duration.CopyFrom(to_duration(_span(found[2])))
    if found[3]:
        due = to_duration(_span(found[3]))
        spec.deadlines.add(due_duration=due, reward=_FULL_REWARD)
    return spec


def _span(text: str) -> float:
    try:
        return parse_span(text)
    except ValueError as error:
        raise InvalidRequest(f"--add-job: {error}", field="--add-job") from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InvalidRequest(
            f"--set: {text[:64]!r} is not KEY=VALUE", field="--set", hint="such as order=requeue"
        )
    return key, value


def _median(starts_s: list[float], at_s: float) -> str:
    middle_s = median(starts_s)
    return "longer than foreseen" if middle_s == _NEVER_S else age(middle_s - at_s)


def _likely_s(range_: forecast_pb2.TimeRange) -> float:
    return from_timestamp(range_.likely_time) if range_.HasField("likely_time") else _NEVER_S


def _waits(one: wire.ComparedStart) -> bool:
    starts = one.HasField("start") or one.HasField("other_start")
    return starts and not one.running and not _is_new(one)


def _is_new(one: wire.ComparedStart) -> bool:
    return one.job_id.startswith("new-")


def _kept(one: wire.ComparedStart, end: forecast_pb2.TimeRange) -> bool:
    return _likely_s(end) <= from_timestamp(one.due_time)


def _turns(one: wire.ComparedStart) -> bool:
    """Whether its deadline is kept in one world and not in the other."""
    return one.HasField("due_time") and _kept(one, one.end) != _kept(one, one.other_end)


def _row(one: wire.ComparedStart, look: OutputLook) -> list[str]:
    now = short_range(one.start, look) if one.HasField("start") else "never"
    then = short_range(one.other_start, look) if one.HasField("other_start") else "never"
    if one.running and not one.HasField("start"):
        now, then = "runs", f"again {then}" if one.HasField("other_start") else "runs"
    return [one.job_id, "-" if _is_new(one) else now, then, _deadline(one)]


def _deadline(one: wire.ComparedStart) -> str:
    """Whether its deadline is kept, likely."""
    if not one.HasField("due_time"):
        return "-"
    then = "kept" if _kept(one, one.other_end) else "late"
    if _is_new(one):
        return then
    now = "kept" if _kept(one, one.end) else "late"
    return f"{now} now, {then} then"
