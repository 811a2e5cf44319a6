"""`--set` for policies that rent nodes by need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.policy.priced.names import DEFAULT, SETTINGS
from dlq_simulator.columns import BadValue, positive
from dlq_simulator.errors import UsageError
from dlq_simulator.world.speed import Speed
from dlq_simulator.world_settings import Readers, costs, read, speed

_HOUR_S = 3600.0
_DP_STEP_S = 900.0
_MEASURE_S = 300.0  # as long as a trial of Chronus


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
    told = read(words, _TOLD)
    cost_s = costs(words)
    return PricedSettings(
        name=name,
        words={key: text for key, text in words.items() if key in SETTINGS[name]},
        interval_s=told.get("interval_s", _DP_STEP_S if name == "gpuaas-dp" else _HOUR_S),
        resume_s=cost_s["save_s"] + cost_s["resume_s"] if told.get("charged", True) else 0.0,
        speed=speed(words),
        seed=seed,
        fitting=_fitting(words, fitted=not told.get("exact", True)),
    )


def _fitting(words: Mapping[str, str], *, fitted: bool) -> Fitting | None:
    if fitted:
        return Fitting(**read(words, _FITTING))
    for key in _FITTING:
        if key in words:
            what = f"cannot use --set {key}={words[key]}"
            raise UsageError(what, "run times are exact", "add --set times=fitted")
    return None


def _interval(text: str) -> float:
    """H: an hour, or the step of the dynamic program; off: never."""
    try:
        return math.inf if text == "off" else float(positive(text))
    except BadValue as error:
        raise BadValue(f"{error}, or off") from None


def _is_first(first: str, second: str) -> Callable[[str], bool]:
    def chosen(text: str) -> bool:
        if text not in (first, second):
            raise BadValue(f"expected one of {first}, {second}")
        return text == first

    return chosen


_TOLD: Readers = MappingProxyType(
    {
        "preempt": ("charged", _is_first("charged", "free")),
        "interval_s": ("interval_s", _interval),
        "times": ("exact", _is_first("exact", "fitted")),
    }
)
_FITTING: Readers = MappingProxyType(
    {
        "refine": ("refine", _is_first("on", "off")),
        "measure_s": ("measure_s", lambda text: float(positive(text))),
        "history": ("history", str),
    }
)
NAMES = tuple(name for name in SETTINGS if name != DEFAULT)
KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: (*own, "interval_s", "preempt", "times", *_FITTING) for name, own in SETTINGS.items()}
)
