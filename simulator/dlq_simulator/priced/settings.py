"""`--set` for policies that rent nodes by need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.policy.priced.names import DEFAULT, SETTINGS
from dlq_simulator.columns import BadValue, positive
from dlq_simulator.errors import UsageError
from dlq_simulator.world.speed import Speed
from dlq_simulator.world_settings import costs, speed

_FITTING = ("refine", "measure_s", "history")
_WORLD = ("interval_s", "preempt", "times", *_FITTING)
_HOUR_S = 3600.0
_DP_STEP_S = 900.0
_MEASURE_S = 300.0  # as long as a trial of Chronus

NAMES = tuple(name for name in SETTINGS if name != DEFAULT)
KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: (*own, *_WORLD) for name, own in SETTINGS.items()}
)


def rents(name: str, rented_only: bool) -> bool:
    """Whether the policy rents nodes by need; `rented_only`: the cluster has no node of its own."""
    return name in NAMES or (name == DEFAULT and rented_only)


class Fitting(NamedTuple):
    """Run times are learned: from the trace `history` and from jobs that have ended. Each is
    measured once it has run on a shape for `measure_s`; `refine`: measurements of a running job
    count for it.
    """

    measure_s: float = _MEASURE_S
    refine: bool = True
    history: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedSettings:
    """One policy, as words until numpy may be imported, and its world. It decides every
    `interval_s` (inf: at submits and completions only). A job that gets other GPUs loses
    `resume_s`. `fitting`: how run times are learned; None: they are known.
    """

    name: str
    words: Mapping[str, str]
    interval_s: float
    resume_s: float
    speed: Speed
    seed: int
    fitting: Fitting | None = None

    @property
    def solves(self) -> bool:
        """Whether the policy has a solver that prints."""
        return self.name == "gpuaas-milp"


def priced_settings(name: str, words: Mapping[str, str], seed: int) -> PricedSettings:
    """UsageError for a fault of the world; `run` looks at the policy's own."""
    charged = _word(words, "preempt", ("charged", "free"))
    cost_s = costs(words)
    return PricedSettings(
        name=name,
        words={key: text for key, text in words.items() if key in SETTINGS[name]},
        interval_s=_interval_s(name, words),
        resume_s=cost_s["save_s"] + cost_s["resume_s"] if charged == "charged" else 0.0,
        speed=speed(words),
        seed=seed,
        fitting=_fitting(words),
    )


def _fitting(words: Mapping[str, str]) -> Fitting | None:
    if _word(words, "times", ("exact", "fitted")) == "fitted":
        return Fitting(
            measure_s=_positive(words, "measure_s", _MEASURE_S),
            refine=_word(words, "refine", ("on", "off")) == "on",
            history=words.get("history"),
        )
    for key in _FITTING:
        if key in words:
            what = f"cannot use --set {key}={words[key]}"
            raise UsageError(what, "run times are exact", "add --set times=fitted")
    return None


def _interval_s(name: str, words: Mapping[str, str]) -> float:
    """H: an hour, or the step of the dynamic program."""
    text = words.get("interval_s")
    if text is None:
        return _DP_STEP_S if name == "gpuaas-dp" else _HOUR_S
    if text == "off":
        return math.inf
    return _positive(words, "interval_s", _HOUR_S, ", or off")


def _positive(words: Mapping[str, str], key: str, default: float, besides: str = "") -> float:
    text = words.get(key)
    if text is None:
        return default
    try:
        return float(positive(text))
    except BadValue as error:
        what = f"cannot read --set {key}={text}"
        raise UsageError(what, f"{error}{besides}", "correct --set") from error


def _word(words: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    """The setting, which must be one of these; the first by default."""
    text = words.get(key, allowed[0])
    if text not in allowed:
        what = f"cannot read --set {key}={text}"
        raise UsageError(what, f"expected one of {', '.join(allowed)}", "correct --set")
    return text
