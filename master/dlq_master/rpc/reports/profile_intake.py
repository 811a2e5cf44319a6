"""Reports of agents about the traffic of their ranks, checked before they are stored and merged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from dlq.v1 import profile_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_duration, said
from dlq_master.control.stimuli import TakeEvidence
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.recording import Evidence
from dlq_master.rpc.specs.intake import job_id_of, words_of
from dlq_profiler.results import (
    Interval,
    JobProfile,
    Method,
    Pattern,
    ProcessProfile,
    TrafficConfidence,
    TrafficReason,
    TrafficVerdict,
)

MOST_PROCESSES_BYTES = 256 << 10
MOST_PROCESSES = 4096
MOST_WORDS = 64
OLDEST_S = 366 * 86_400.0
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z", re.ASCII)

T = TypeVar("T")


def evidence_of(message: wire.ProfileEvidence, node_id: NodeId) -> TakeEvidence:
    """Evidence of this node. InvalidRequest: the analysis cannot have written it."""
    key = AttemptKey(job_id_of(message.job_id, "profile_evidence.job_id"), message.fence.attempt)
    if message.node_rank < 0:
        raise InvalidRequest("ranks are counted from 0", field="profile_evidence.node_rank")
    age_s = min(max(0.0, from_duration(message.age_duration)), OLDEST_S)
    return TakeEvidence(
        epoch=message.fence.epoch,
        age_s=age_s,
        evidence=Evidence(
            key=key,
            node_rank=message.node_rank,
            node_id=node_id,
            gpu_type=words_of(message.gpu_type, "profile_evidence.gpu_type"),
            window_s=max(0.0, from_duration(message.window_duration)),
            limits=_words(message.limits, "limits"),
            profile=_read(lambda: _summary(message)).json(),
            processes=_read(lambda: _processes(message.processes)),
        ),
    )


def _read(reader: Callable[[], T]) -> T:
    try:
        return reader()
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"a traffic profile that cannot be: {error}"[:300], field="profile_evidence"
        ) from None


def _summary(message: wire.ProfileEvidence) -> JobProfile:
    profile = JobProfile(
        pattern=Pattern(message.pattern or Pattern.OTHER),
        traffic=_verdict(message.traffic),
        sizes=_verdict(message.sizes),
        processes=message.process_count,
        world_size=said(message, "rank_count"),
        iterations=message.iteration_count,
        period_s=said(message, "period_duration"),
        jitter=said(message, "jitter"),
        bytes_per_iteration=said(message, "bytes_per_iteration"),
        model_bytes=said(message, "model_bytes"),
        largest_tensor_bytes=_interval(
            message, "largest_tensor_low_bytes", "largest_tensor_high_bytes"
        ),
        skew=_interval(message, "skew_low", "skew_high"),
        server_skew=said(message, "server_skew"),
        active_fraction=said(message, "active_fraction"),
        self_check_error=said(message, "self_check_error"),
        records=message.record_count,
        lost=message.lost_count,
        unseen=_words(message.unseen, "unseen"),
    )
    return JobProfile.of(json.loads(profile.json()))  # every number is finite and not negative


def _verdict(verdict: wire.ProfileVerdict) -> TrafficVerdict:
    reason = TrafficReason(verdict.reason) if verdict.reason else None
    found = TrafficVerdict(Method(verdict.method), TrafficConfidence(verdict.confidence), reason)
    if (found.confidence is TrafficConfidence.UNKNOWN) is found.known:
        raise ValueError("what is unknown has a reason, and nothing else has")
    return found


def _interval(message: wire.ProfileEvidence, low: str, high: str) -> Interval | None:
    lower, upper = said(message, low), said(message, high)
    if lower is None or upper is None:
        return None
    if lower > upper:
        raise ValueError(f"{low} is above {high}")
    return Interval(lower, upper)


def _processes(raw: bytes) -> str:
    """The list, parsed as the profiles of processes and written again."""
    if not raw:
        return ""
    if len(raw) > MOST_PROCESSES_BYTES:
        raise ValueError("the profiles of its processes are too large")
    told = json.loads(raw)
    if not isinstance(told, list) or len(told) > MOST_PROCESSES:
        raise ValueError("its processes are no list, or too many")
    profiles = [ProcessProfile.of(facts) for facts in told]
    return json.dumps([profile.facts() for profile in profiles], separators=(",", ":"))


def _words(words: object, name: str) -> tuple[str, ...]:
    found = tuple(str(word) for word in words)  # type: ignore[attr-defined] # a repeated field
    if len(found) > MOST_WORDS or not all(_WORD.match(word) for word in found):
        raise InvalidRequest(f"{name} are few short words", field=f"profile_evidence.{name}")
    return found
