"""Methods that rent nodes, by name and settings."""

from __future__ import annotations

import pytest

from dlq_master.policy.priced.names import SETTINGS
from dlq_master.policy.registry.renting import build
from dlq_master.policy.registry.settings import PolicyError
from unit.master.policy.priced.drawing import chance, drawn


def test_every_method_is_listed_with_its_settings() -> None:
    for name in SETTINGS:
        build(name, {})


def test_settings_reach_the_solver() -> None:
    solver = build("gpuaas-randomized", {"iterations": "3", "reading": "reference", "rho": "7"})
    rules = solver.keywords["rules"]  # type: ignore[attr-defined]  # it is a partial
    assert (rules.iterations, rules.released, rules.rho) == (3, True, 7.0)
    asked = drawn(4, 6, 2)
    slow = build("gpuaas-dp", {"variant": "fast-b", "step_s": "60"})
    assert slow(asked, chance()).grants


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("gpuaas-gredy", {}, "did you mean 'gpuaas-greedy'"),
        ("gpuaas-greedy", {"elite": "3"}, "policy gpuaas-greedy has no setting 'elite'"),
        ("gpuaas-path-relinking", {"elite": "0"}, "elite=0: expected a whole number from 1 on"),
        ("gpuaas-path-relinking", {"alpha": "x"}, "alpha=x: expected a number from 0 to 1"),
        ("gpuaas-randomized", {"reading": "mine"}, "expected one of paper, reference"),
    ],
)
def test_slips_are_named(name: str, words: dict[str, str], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        build(name, words)
