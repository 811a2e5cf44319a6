"""Methods that rent nodes, by name: a solver from `key=value` words, every slip named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from dlq_master.model.late import np
from dlq_master.policy.priced.compared import dp, first_principle
from dlq_master.policy.priced.compared.hierarchical import (
    MOST_CHOICES,
    choices,
    hierarchical,
    parts,
)
from dlq_master.policy.priced.compared.milp import EXACT, step_milp
from dlq_master.policy.priced.greedy import greedy
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.names import DEFAULT, PROGRAMS, SETTINGS
from dlq_master.policy.priced.rules import PaperReading, Proxy, Rules
from dlq_master.policy.priced.situation import Schedule, Situation, Solver
from dlq_master.policy.registry.settings import PolicyError, count, one_of, read, suggestion, whole


def _by_milp(
    situation: Situation,
    draw: np.random.Generator,
    *,
    rho: float = 100.0,
    mu: float = 1.0,
    limit_s: float = EXACT.limit_s,
) -> Schedule:
    """The exact decision; RuntimeError where the solver gives up."""
    if not situation.jobs:
        return Schedule({}, {})
    effort = EXACT._replace(limit_s=limit_s)
    found = step_milp(situation, Rules(rho=rho, mu=mu), effort).schedule
    if found is None:
        raise RuntimeError("the step program found no schedule in its time: it is for small cases")
    return found


# The rules of the path relinking paper that a method starts from; None: it has settings of its own.
_METHODS: Mapping[str, tuple[Callable[..., Schedule], Rules | None]] = MappingProxyType(
    {
        DEFAULT: (marginal, None),
        "gpuaas-marginal": (marginal, None),
        "gpuaas-greedy": (greedy.greedy, greedy.GREEDY),
        "gpuaas-randomized": (greedy.randomized, greedy.RANDOMIZED),
        "gpuaas-path-relinking": (greedy.path_relinking, greedy.PATH_RELINKING),
        "gpuaas-local-search": (greedy.local_search, greedy.LOCAL_SEARCH),
        "gpuaas-hierarchical": (hierarchical, None),
        "gpuaas-dp": (dp.dp, None),
        "gpuaas-fifo": (first_principle.fifo, None),
        "gpuaas-edf": (first_principle.edf, None),
        "gpuaas-ps": (first_principle.ps, None),
        "gpuaas-milp": (_by_milp, None),
    }
)


LIVE_S = 0.5  # for all programs of a live decision, without building them
LEAST_S = 0.01  # of a program


def build(name: str, words: Mapping[str, str]) -> Solver:
    """The solver `name`; raises PolicyError on a name or a key that there is not, or a bad
    value.
    """
    if name not in _METHODS:
        raise PolicyError(f"there is no priced policy {name!r}{suggestion(name, tuple(_METHODS))}")
    values = read(name, SETTINGS[name], words, _READERS)
    method, rules = _METHODS[name]
    if rules is not None:
        return partial(method, rules=rules._replace(**values))
    return partial(method, **values)


def build_live(name: str, words: Mapping[str, str]) -> Solver:
    """The same for a master, whose decisions must come in seconds. Programs get `LIVE_S`, unless
    the words name another limit. A program that is too large, or has no schedule in its time,
    leaves the decision to the default method.
    """
    if name not in PROGRAMS:
        return build(name, words)
    build(name, words)  # tells slips at once
    limit_s = float(words.get("limit_s", LIVE_S))

    def solve(situation: Situation, draw: np.random.Generator) -> Schedule:
        if name == "gpuaas-milp" and choices(situation) > MOST_CHOICES:
            return marginal(situation, draw)
        try:
            shared = len(parts(situation)) if name == "gpuaas-hierarchical" else 1
            each_s = max(LEAST_S, limit_s / shared)
            return build(name, {**words, "limit_s": str(each_s)})(situation, draw)
        except RuntimeError:
            return marginal(situation, draw)

    return solve


def _number(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"expected a number from {least:g} to {most:g}")
        return value

    return number


_READERS: Mapping[str, tuple[str, Callable[[str], object]]] = MappingProxyType(
    {
        key: (key, reader)
        for key, reader in {
            "reading": one_of({reading.value: reading for reading in PaperReading}),
            "proxy": one_of({proxy.value: proxy for proxy in Proxy}),
            "iterations": count,
            "elite": count,
            "moves": whole,
            "alpha": _number(0, 1),
            "beta": _number(0, 1),
            "swap": _number(0, 0.5),
            "rho": _number(0, 1e12),
            "mu": _number(0, 1e12),
            "lookahead": _number(1e-3, 1e3),
            "branches": count,
            "limit_s": _number(LEAST_S, 86_400),
            "variant": one_of({variant.value: variant for variant in dp.Variant}),
            "step_s": _number(1, 1e9),
            "constant": _number(0, 1e15),
        }.items()
    }
)
