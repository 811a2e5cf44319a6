"""`--set` for policies that rent nodes by need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dlq_master.policy.priced.names import DEFAULT, SETTINGS
from dlq_simulator.columns import BadValue, positive
from dlq_simulator.errors import UsageError
from dlq_simulator.speed import Speed
from dlq_simulator.world_settings import costs, speed

_WORLD = ("interval_s", "preempt")
_HOUR_S = 3600.0
_DP_STEP_S = 900.0

NAMES = tuple(name for name in SETTINGS if name != DEFAULT)
KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: (*own, *_WORLD) for name, own in SETTINGS.items()}
)


def rents(name: str, rented_only: bool) -> bool:
    """Whether the policy rents nodes by need; `rented_only`: the cluster has no node of its own."""
    return name in NAMES or (name == DEFAULT and rented_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedSettings:
    """One policy, as words until numpy may be imported, and its world: it decides every `interval_s` (inf: at
    submits and completions only), and a job that gets other GPUs loses `resume_s`."""

    name: str
    words: Mapping[str, str]
    interval_s: float
    resume_s: float
    speed: Speed
    seed: int

    @property
    def solves(self) -> bool:
        """With a solver that prints."""
        return self.name == "gpuaas-milp"


def priced_settings(name: str, words: Mapping[str, str], seed: int) -> PricedSettings:
    """UsageError for what is wrong with the world; `run` looks at the policy's own."""
    charged = words.get("preempt", "charged")
    if charged not in ("charged", "free"):
        what = f"cannot read --set preempt={charged}"
        raise UsageError(what, "expected one of charged, free", "correct --set")
    cost_s = costs(words)
    return PricedSettings(
        name=name,
        words={key: text for key, text in words.items() if key in SETTINGS[name]},
        interval_s=_interval_s(name, words),
        resume_s=cost_s["save_s"] + cost_s["resume_s"] if charged == "charged" else 0.0,
        speed=speed(words),
        seed=seed,
    )


def _interval_s(name: str, words: Mapping[str, str]) -> float:
    """H: an hour, or the step of the dynamic program."""
    text = words.get("interval_s")
    if text is None:
        return _DP_STEP_S if name == "gpuaas-dp" else _HOUR_S
    if text == "off":
        return math.inf
    try:
        return float(positive(text))
    except BadValue as error:
        what = f"cannot read --set interval_s={text}"
        raise UsageError(what, f"{error}, or off", "correct --set") from error
