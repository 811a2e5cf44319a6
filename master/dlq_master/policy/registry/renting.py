"""Priced policies by name: a solver from `key=value` words, every slip named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dlq_master.policy.priced.compared import dp, first_principle
from dlq_master.policy.priced.compared.milp import step_milp
from dlq_master.policy.priced.greedy import greedy
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.names import DEFAULT, SETTINGS
from dlq_master.policy.priced.rules import PaperReading, Proxy, Rules
from dlq_master.policy.priced.situation import Schedule, Situation, Solver
from dlq_master.policy.registry.settings import PolicyError, suggestion


class PricedPreset(NamedTuple):
    """`make` gets the settings as values."""

    summary: str
    make: Callable[[Mapping[str, object]], Solver]


def _method(
    method: Callable[..., Schedule], rules: Rules
) -> Callable[[Mapping[str, object]], Solver]:
    def make(values: Mapping[str, object]) -> Solver:
        return partial(method, rules=rules._replace(**values))  # type: ignore[arg-type]  # keyed by _READERS

    return make


def _told(method: Callable[..., Schedule]) -> Callable[[Mapping[str, object]], Solver]:
    def make(values: Mapping[str, object]) -> Solver:
        return partial(method, **values) if values else method

    return make


def _by_milp(
    situation: Situation, draw: np.random.Generator, *, rho: float = 100.0, mu: float = 1.0
) -> Schedule:
    """The exact decision; RuntimeError where the solver gives up."""
    if not situation.jobs:
        return Schedule({}, {})
    found = step_milp(situation, Rules(rho=rho, mu=mu)).schedule
    if found is None:
        raise RuntimeError("the step program found no schedule in its time: it is for small cases")
    return found


_MARGINAL = PricedPreset(
    "GPUs to whom one more is worth most, by apparent tardiness cost; the default of priced nodes",
    _told(marginal),
)

PRICED: Mapping[str, PricedPreset] = MappingProxyType(
    {
        DEFAULT: _MARGINAL,
        "gpuaas-marginal": _MARGINAL,
        "gpuaas-greedy": PricedPreset(
            "the most pressing first, each in the cheapest configuration that makes its due date",
            _method(greedy.greedy, greedy.GREEDY),
        ),
        "gpuaas-randomized": PricedPreset(
            "the best of many randomised greedy schedules",
            _method(greedy.randomized, greedy.RANDOMIZED),
        ),
        "gpuaas-path-relinking": PricedPreset(
            "randomised greedy, then path relinking between the best",
            _method(greedy.path_relinking, greedy.PATH_RELINKING),
        ),
        "gpuaas-dp": PricedPreset(
            "dynamic programming over jobs and nodes, one job on each node", _told(dp.dp)
        ),
        "gpuaas-fifo": PricedPreset(
            "one job on each node to its end, in the order of arrival", _told(first_principle.fifo)
        ),
        "gpuaas-edf": PricedPreset(
            "one job on each node to its end, the earliest due date first",
            _told(first_principle.edf),
        ),
        "gpuaas-ps": PricedPreset(
            "one job on each node to its end, the largest tardiness weight first",
            _told(first_principle.ps),
        ),
        "gpuaas-milp": PricedPreset(
            "the mixed integer program of each decision, exactly; for a few jobs", _told(_by_milp)
        ),
    }
)


def build(name: str, words: Mapping[str, str]) -> Solver:
    """The solver `name`; raises PolicyError on a name or a key that there is not, or a bad
    value.
    """
    if name not in PRICED:
        raise PolicyError(f"there is no priced policy {name!r}{suggestion(name, tuple(PRICED))}")
    known, values = SETTINGS[name], {}
    for key, text in words.items():
        if key not in known:
            raise PolicyError(f"policy {name} has no setting {key!r}{suggestion(key, known)}")
        try:
            values[key] = _READERS[key](text)
        except ValueError as error:
            raise PolicyError(f"setting {key}={text}: {error}") from error
    return PRICED[name].make(values)


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"expected a number from {least:g} to {most:g}")
        return value

    return read


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"expected a whole number from {least} on")
        return int(text)

    return read


def _word(of: type[PaperReading] | type[Proxy] | type[dp.Variant]) -> Callable[[str], object]:
    def read(text: str) -> object:
        if text not in {word.value for word in of}:
            raise ValueError(f"expected one of {', '.join(of)}")
        return of(text)

    return read


_READERS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        "reading": _word(PaperReading),
        "proxy": _word(Proxy),
        "iterations": _whole(1),
        "elite": _whole(1),
        "moves": _whole(0),
        "alpha": _number(0, 1),
        "beta": _number(0, 1),
        "swap": _number(0, 0.5),
        "rho": _number(0, 1e12),
        "mu": _number(0, 1e12),
        "lookahead": _number(1e-3, 1e3),
        "variant": _word(dp.Variant),
        "step_s": _number(1, 1e9),
        "constant": _number(0, 1e15),
    }
)
