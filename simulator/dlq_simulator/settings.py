"""`--set key=value`: the policies' own settings, and what preemption costs here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dlq_common.suggest import did_you_mean
from dlq_master.model.lease import Terms
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry import PRESETS, build
from dlq_master.policy.settings import PolicyError
from dlq_master.policy.transit.taking import Taking
from dlq_simulator.columns import BadValue, number, positive, seconds
from dlq_simulator.errors import UsageError
from dlq_simulator.history import read_history
from dlq_simulator.queues import QUEUES
from dlq_simulator.speed import Speed

# One pause and resume cost about a minute in the papers' testbeds: 57 to 62 s in Tiresias
# (lost time over preemptions), 63 s in Aryl. Half of it is charged on each side.
COSTS: Mapping[str, float] = MappingProxyType({"save_s": 30, "resume_s": 30, "term_s": 300})
HISTORY, QUEUED_BY = "history", "queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """One policy with what the replay charges for a preemption.

    Work that is taken away stops `save_s` before its boundary and holds its GPUs until then; it
    makes no progress in the first `resume_s` of its next start. Both are 0 if preemption is free.
    """

    policy: Policy
    terms: Terms
    save_s: float
    resume_s: float
    speed: Speed
    queues: str = "class"  # what tells the queue of a row, for a policy with quotas


def read_settings(names: Sequence[str], assignments: Sequence[str]) -> list[ReplaySettings]:
    """The named policies, each with the settings that it knows.

    A setting that none of them knows is a UsageError, so that one `--set` may serve a comparison
    and a slip is still found.
    """
    for name in names:
        if name not in PRESETS:
            raise UsageError(
                f"there is no policy {name!r}{did_you_mean(name, PRESETS)}",
                f"dlq simulates {', '.join(PRESETS)}",
                "choose one of them",
            )
    words = _words(assignments)
    known = sorted({*COSTS, *_SPEED, *(key for name in names for key in _known(name))})
    for key in words:
        if key not in known:
            raise UsageError(
                f"unknown setting {key!r}{did_you_mean(key, known)}",
                f"{', '.join(names)} can be told {', '.join(known)}",
                "correct --set",
            )
    return [_settings(name, words) for name in names]


def _known(name: str) -> tuple[str, ...]:
    """What the policy can be told here; to a master it may not be a file."""
    preset = PRESETS[name]
    own = (*([HISTORY] if preset.by_service else []), *([QUEUED_BY] if preset.by_quota else []))
    return (*preset.settings, *own)


def _words(assignments: Sequence[str]) -> dict[str, str]:
    words: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key or not value:
            raise UsageError(
                f"cannot read --set {assignment!r}",
                "it is not KEY=VALUE",
                "write for example --set place=count",
            )
        words[key] = value
    return words


def _settings(name: str, words: Mapping[str, str]) -> ReplaySettings:
    chosen = {key: value for key, value in words.items() if key in PRESETS[name].settings}
    costs = {key: _cost(key, words[key]) if key in words else COSTS[key] for key in COSTS}
    try:
        policy = build(name, chosen, _history(name, words))
    except PolicyError as error:
        raise UsageError(f"cannot simulate {name!r}", str(error), "correct --set") from error
    terms = _terms(costs)
    if policy.taking is Taking.NEVER:
        # Every term would be renewed: without a grid the same work starts at the same instants.
        policy = replace(policy, grid=False)
    free = policy.taking is not Taking.BOUNDARY
    return ReplaySettings(
        policy=policy,
        terms=terms,
        save_s=0 if free else costs["save_s"],
        resume_s=0 if free else costs["resume_s"],
        speed=_speed(words),
        queues=_queued_by(words),
    )


def _history(name: str, words: Mapping[str, str]) -> list[float]:
    told = HISTORY in words and HISTORY in _known(name)
    return read_history(words[HISTORY]) if told else []


def _queued_by(words: Mapping[str, str]) -> str:
    by = words.get(QUEUED_BY, "class")
    if by not in QUEUES:
        raise UsageError(
            f"cannot read --set {QUEUED_BY}={by}",
            f"expected one of {', '.join(QUEUES)}",
            "correct --set",
        )
    return by


def _terms(costs: Mapping[str, float]) -> Terms:
    term_s, save_s, resume_s = costs["term_s"], costs["save_s"], costs["resume_s"]
    if save_s + resume_s >= term_s:
        raise UsageError(
            "cannot charge these preemption costs",
            f"in a term of {term_s:g} s, {save_s:g} s to save and {resume_s:g} s to resume leave "
            "no time for work",
            "set a longer term_s, or smaller save_s and resume_s",
        )
    return Terms(be_term_s=term_s, slo_term_s=4 * term_s, save_lead_s=save_s)


def _speed(words: Mapping[str, str]) -> Speed:
    """What placements and sizes do to the speed of jobs."""
    values: dict[str, Any] = {}
    for key, (field, read) in _SPEED.items():
        if key in words:
            try:
                values[field] = read(words[key])
            except BadValue as error:
                raise UsageError(
                    f"cannot read --set {key}={words[key]}", str(error), "correct --set"
                ) from error
    return Speed(**values)


def _charged(text: str) -> bool:
    if text not in ("charged", "free"):
        raise BadValue("expected charged or free")
    return text == "charged"


def _overlap(text: str) -> float:
    value = math.inf if text == "full" else positive(text)
    if value < 1:
        raise BadValue("expected 1 (none) or more, or full")
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


# Setting -> field of Speed, and its reader.
_SPEED: Mapping[str, tuple[str, Callable[[str], object]]] = MappingProxyType(
    {
        "slowdown": ("slowdown", _charged),
        "overlap": ("overlap", _overlap),
        "skew_rho": ("skew_rho", seconds),
        "scaling": ("efficiency", _scaling),
    }
)


def _cost(key: str, text: str) -> float:
    try:
        return seconds(text)
    except BadValue as error:
        raise UsageError(
            f"cannot read --set {key}={text}", str(error), "give seconds, such as 30"
        ) from error
