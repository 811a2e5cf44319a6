"""The traffic of a job, for people: the estimate, its source and its consequences."""

from __future__ import annotations

from collections.abc import Iterator

from dlq.v1 import profile_pb2
from dlq_cli.output.render import OutputLook, clean_line, when
from dlq_cli.text.profiles import NOTHING_RECORDED, WHY, amount
from dlq_common.text.wire import from_duration, from_timestamp

CAUSES = {
    "first": "its first",
    "placement": "its first on this number of nodes",
    "stale": "the estimate is old",
    "asked": "asked for",
}


def traffic_pairs(traffic: profile_pb2.JobTraffic, look: OutputLook) -> Iterator[tuple[str, str]]:
    """Lines of `dlq show`; none for a job of which nothing is known and nothing was recorded."""
    if traffic.HasField("belief"):
        belief = traffic.belief
        yield "traffic", _figures(belief)
        yield "known from", f"{source_text(belief, look)}; {verdict_text(belief.traffic)}"
        if belief.HasField("skew_high"):
            yield "skew", f"{skew_text(belief)}; {verdict_text(belief.sizes)}"
        if belief.HasField("slowdown"):
            yield "if spread", slowdown_text(belief)
    if traffic.placement:
        yield "placed", placement_text(traffic)
    if traffic.starts and not (
        _tells_nothing(traffic.starts[-1]) and traffic.starts[-1].cause != "asked"
    ):
        yield "recorded", start_text(traffic.starts[-1])


def believed_lines(traffic: profile_pb2.JobTraffic, look: OutputLook) -> Iterator[str]:
    """Lines of `dlq why`: the estimate that placement uses."""
    if traffic.placement:
        yield f"placement: {placement_text(traffic)}"
    if traffic.HasField("belief"):
        belief = traffic.belief
        yield f"traffic: {_figures(belief)}, from {source_text(belief, look)}"
    elif traffic.starts and not _tells_nothing(traffic.starts[-1]):
        yield f"traffic: not known; recorded: {start_text(traffic.starts[-1])}"
    elif traffic.placement:
        yield "traffic: not known; its first start will tell"


def _figures(belief: profile_pb2.TrafficBelief) -> str:
    parts = []
    if belief.HasField("period_duration"):
        period_s = from_duration(belief.period_duration)
        parts.append(f"{amount(belief.bytes_per_iteration)} every {period_s:.3g} s")
    if belief.HasField("rho"):
        parts.append(f"rho {belief.rho:.2g}")
    if not parts and belief.HasField("model_bytes"):
        parts.append(f"model {amount(belief.model_bytes)}")
    return ", ".join(parts)


def source_text(belief: profile_pb2.TrafficBelief, look: OutputLook) -> str:
    """The start that the estimate is from, its nodes and its time."""
    whose = "its" if belief.own else f"job {belief.job_id}'s"
    family = "" if belief.own else f" of the family {clean_line(belief.family)}"
    kind = clean_line(belief.gpu_type) or "GPUs"
    spread = ", spread" if belief.spread else ""
    found = ""
    if belief.HasField("found_time"):
        found = f", {when(from_timestamp(belief.found_time), look)}"
    return (
        f"{whose} attempt {belief.attempt}{family} on {belief.gpu_count} {kind},"
        f" nodes: {belief.node_count}{spread}{found}"
    )


def skew_text(belief: profile_pb2.TrafficBelief) -> str:
    """The largest tensor's share, and the model it is a share of."""
    low, high = f"{belief.skew_low:.1%}", f"{belief.skew_high:.1%}"
    share = high if low == high else f"{low} to {high}"
    return f"{share} of a model of {amount(belief.model_bytes)}"


def slowdown_text(belief: profile_pb2.TrafficBelief) -> str:
    """What was measured."""
    return (
        f"takes {belief.slowdown:.2f} times as long"
        f" (attempt {belief.spread_attempt} against {belief.together_attempt})"
    )


def placement_text(traffic: profile_pb2.JobTraffic) -> str:
    """The use of the estimate in plans."""
    if traffic.placement == "together":
        reason = clean_line(traffic.placement_reason)
        return f"on few nodes{f': {reason}' if reason else ''}"
    if traffic.placement == "fewest":
        return "on as few nodes as can be had now, while nothing is known"
    return "on any nodes: it does not suffer from being spread"


def _tells_nothing(start: profile_pb2.RecordedStart) -> bool:
    """No process was seen with traffic of a training: most programs that do not train in
    parallel.
    """
    return start.HasField("traffic") and start.traffic.reason == NOTHING_RECORDED


def start_text(start: profile_pb2.RecordedStart) -> str:
    """How far the recording of a start is."""
    why = CAUSES.get(start.cause, clean_line(start.cause))
    head = f"attempt {start.attempt} ({why})"
    if start.HasField("traffic"):
        return f"{head}: {verdict_text(start.traffic)}"
    return f"{head}: {start.told_count} of {start.node_count} nodes have told"


def verdict_text(verdict: profile_pb2.ProfileVerdict) -> str:
    """How sure, and by which method; or why it is unknown."""
    if verdict.reason:
        return f"unknown: {WHY.get(verdict.reason, clean_line(verdict.reason))}"
    return f"{verdict.confidence}, by {verdict.method}"
