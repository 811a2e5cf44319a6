"""Methods that rent nodes, by name and settings."""

from __future__ import annotations

import pytest

from dlq_master.policy.priced.compared import hierarchical as compared
from dlq_master.policy.priced.compared.milp import Effort, SolvedMilp
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.names import SETTINGS
from dlq_master.policy.priced.situation import EMPTY
from dlq_master.policy.registry import renting
from dlq_master.policy.registry.renting import build, build_live
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


@pytest.mark.parametrize("reason", ["gives up", "too large"])
def test_a_live_program_without_a_schedule_leaves_the_decision_to_the_default(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives_up(*told: object) -> SolvedMilp:
        return SolvedMilp(None, 0.0, 0.0)

    asked = drawn(4, 5, 2)
    if reason == "gives up":
        monkeypatch.setattr(renting, "step_milp", gives_up)
    else:
        monkeypatch.setattr(renting, "MOST_CHOICES", 1)
    assert build_live("gpuaas-milp", {})(asked, chance()) == marginal(asked, chance())
    if reason == "gives up":
        with pytest.raises(RuntimeError, match="no schedule in its time"):
            build("gpuaas-milp", {})(asked, chance())


def test_a_live_program_has_half_a_second_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def solves(_situation: object, _rules: object, effort: Effort) -> SolvedMilp:
        given.append(effort.limit_s)
        return SolvedMilp(EMPTY, 0.0, 0.0)

    monkeypatch.setattr(renting, "step_milp", solves)
    asked = drawn(4, 5, 2)
    for words in ({}, {"limit_s": "7"}):
        build_live("gpuaas-milp", words)(asked, chance())
    build("gpuaas-milp", {})(asked, chance())
    assert given == [0.5, 7.0, 60.0]


def test_all_controllers_of_a_live_decision_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def solves(_situation: object, _rules: object, effort: Effort) -> SolvedMilp:
        given.append(effort.limit_s)
        return SolvedMilp(EMPTY, 0.0, 0.0)

    monkeypatch.setattr(compared, "step_milp", solves)
    build_live("gpuaas-hierarchical", {})(drawn(4, 30, 20), chance())
    assert given == [0.125] * 4
