"""`--set` about the replay's world, under any policy: costs, speeds, and the known run times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dlq_master.model.lease import Terms
from dlq_master.policy.policy import Policy
from dlq_simulator.columns import BadValue, number, positive, seconds
from dlq_simulator.errors import UsageError
from dlq_simulator.world.knowledge import Knowledge
from dlq_simulator.world.speed import Speed

# One pause and resume cost about a minute in the papers' testbeds. It is 57 to 62 s in Tiresias
# (lost time over preemptions), 63 s in Aryl. Half of it is charged on each side.
COSTS: Mapping[str, float] = MappingProxyType({"save_s": 30, "resume_s": 30, "term_s": 300})


class MoveSettings(NamedTuple):
    """Of suspended jobs: `gpu_bytes` on each GPU, and `host_bytes` that the memory of a host takes
    up. Each GPU's share of a job takes `job_bytes` of that too, also of jobs that run. After
    `longest_s` off its GPUs a job is thrown back to what it had saved: every `saved_s` of its work.
    """

    gpu_bytes: int = 30 * 10**9
    host_bytes: int = 512 * 10**9
    job_bytes: int = 0
    longest_s: float = 3600.0
    saved_s: float = 1800.0


MOVES = MoveSettings()


def costs(words: Mapping[str, str]) -> dict[str, float]:
    """Seconds to save and to resume, and the term."""
    return {**COSTS, **read(words, _COSTS)}


def terms(cost_s: Mapping[str, float], slot_terms: int = 4) -> Terms:
    """The grid of terms that `costs` says; UsageError if a term leaves no time for work.

    `slot_terms`: of an SLO lease, if `slo_term_s` does not say how long it is.
    """
    term_s, save_s, resume_s = cost_s["term_s"], cost_s["save_s"], cost_s["resume_s"]
    if save_s + resume_s >= term_s:
        raise UsageError(
            "cannot charge these preemption costs",
            f"in a term of {term_s:g} s, {save_s:g} s to save and {resume_s:g} s to resume leave "
            "no time for work",
            "set a longer term_s, or smaller save_s and resume_s",
        )
    slo_term_s = cost_s.get("slo_term_s", slot_terms * term_s)
    if not slo_term_s or slo_term_s % term_s:
        raise UsageError(
            f"cannot read --set slo_term_s={slo_term_s:g}",
            f"an SLO lease is a whole number of terms of {term_s:g} s",
            "correct --set",
        )
    return Terms(be_term_s=term_s, slo_term_s=slo_term_s, save_lead_s=save_s, resume_s=resume_s)


def moves(words: Mapping[str, str]) -> MoveSettings:
    """The cost of moves of suspended jobs, and the causes that throw them back."""
    return MOVES._replace(**read(words, _MOVES))


def speed(words: Mapping[str, str]) -> Speed:
    """The effect of placements and sizes on the speed of jobs."""
    return Speed(**read(words, _SPEED))


def knowledge(policy: Policy, words: Mapping[str, str], seed: int) -> Knowledge:
    """The policy's knowledge of run times."""
    trials = policy.profiling is not None
    stands_in = policy.promises is None
    return Knowledge(
        know=policy.know, trials=trials, stands_in=stands_in, seed=seed, **read(words, _PROFILING)
    )


def _charged(text: str) -> bool:
    if text not in ("charged", "free"):
        raise BadValue("expected charged or free")
    return text == "charged"


def _gigabytes(text: str) -> int:
    return int(positive(text) * 1e9)


def _overlap(text: str) -> float:
    value = math.inf if text == "full" else positive(text)
    if value < 1:
        raise BadValue("expected 1 (none) or more, or full")
    return value


def _share(text: str) -> float:
    value = positive(text)
    if value > 1:
        raise BadValue("expected a share above 0, up to 1")
    return value


def _scaling(text: str) -> float | None:
    """The efficiency of each doubling; None: Aryl's rule."""
    if text in ("linear", "aryl"):
        return 1.0 if text == "linear" else None
    try:
        efficiency = number(text)
    except BadValue:
        efficiency = 0
    if not 0.5 <= efficiency <= 1:
        raise BadValue("expected linear, aryl, or the efficiency of a doubling from 0.5 to 1")
    return efficiency


# Setting -> the name of its value, and its reader.
Readers = Mapping[str, tuple[str, Callable[[str], object]]]
_COSTS: Readers = MappingProxyType({key: (key, seconds) for key in (*COSTS, "slo_term_s")})
_SPEED: Readers = MappingProxyType(
    {
        "slowdown": ("slowdown", _charged),
        "overlap": ("overlap", _overlap),
        "skew_rho": ("skew_rho", seconds),
        "scaling": ("efficiency", _scaling),
        "mixed": ("mixed", _share),
    }
)
_MOVES: Readers = MappingProxyType(
    {
        "gpu_gb": ("gpu_bytes", _gigabytes),
        "host_gb": ("host_bytes", _gigabytes),
        "job_gb": ("job_bytes", _gigabytes),
        "longest_s": ("longest_s", positive),
        "saved_s": ("saved_s", positive),
    }
)
_PROFILING: Readers = MappingProxyType(
    {"profile_s": ("profile_s", seconds), "noise": ("noise", seconds)}
)
WORLD = (*_COSTS, *_SPEED, *_MOVES)  # settings of every replay
PROFILING = tuple(_PROFILING)  # of those whose policy uses run times


def read(words: Mapping[str, str], readers: Readers) -> dict[str, Any]:
    """The values of these settings; UsageError for a word that is none."""
    values: dict[str, Any] = {}
    for key, (name, reader) in readers.items():
        if key in words:
            try:
                values[name] = reader(words[key])
            except BadValue as error:
                what = f"cannot read --set {key}={words[key]}"
                raise UsageError(what, str(error), "correct --set") from error
    return values
