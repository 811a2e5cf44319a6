"""From one schedule to the next, as verbs with reasons."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.priced.keep import settled
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.names import SETTINGS
from dlq_master.policy.priced.plan import PricedCause, PricedChange, PricedVerb, changes
from dlq_master.policy.priced.situation import Grant, Schedule, Situation
from dlq_master.policy.registry.renting import PRICED, build
from dlq_master.policy.registry.settings import PolicyError
from support.extent import times
from unit.master.policy.priced.drawing import chance, drawn, job, situation

TIMES = (100, 60, 45, 40)


def test_each_verb_has_its_cause() -> None:
    had = Schedule({0: 2, 1: 0}, {1: Grant(0, 2), 2: Grant(0, 2), 3: Grant(1, 1)})
    asked = situation(
        job(1, 50, *TIMES), job(2, 500, *TIMES), job(3, 10, *TIMES), job(4, 70, *TIMES),
        nodes=3, running=had,
    )  # fmt: skip
    made = Schedule({0: 2, 2: 1}, {1: Grant(0, 3), 3: Grant(0, 1), 4: Grant(2, 2)})
    assert changes(asked, made) == [
        PricedChange(PricedVerb.RELEASE, 1, 0, PricedCause.UNUSED),
        PricedChange(PricedVerb.PROVISION, 2, 1, PricedCause.NEEDED),
        PricedChange(PricedVerb.LAPSE, 0, 2, PricedCause.OUTBID, 2, 2),
        PricedChange(PricedVerb.RESIZE, 0, 2, PricedCause.IN_TIME, 1, 3, 5.0),
        PricedChange(PricedVerb.MOVE, 0, 2, PricedCause.LATE, 3, 1, -90.0),
        PricedChange(PricedVerb.START, 2, 1, PricedCause.IN_TIME, 4, 2, 10.0),
    ]


def test_a_node_of_another_type_is_another_node() -> None:
    had = Schedule({0: 2}, {1: Grant(0, 2)})
    asked = situation(job(1, 500, *TIMES), nodes=1, running=had)
    verbs = [change.verb for change in changes(asked, Schedule({0: 1}, {1: Grant(0, 2)}))]
    assert verbs == [PricedVerb.RELEASE, PricedVerb.PROVISION, PricedVerb.MOVE]


@given(seed=st.integers(0, 10**6), other=st.integers(0, 10**6))
@settings(max_examples=times(15, 40))
def test_the_changes_lead_from_the_one_to_the_other(seed: int, other: int) -> None:
    first = drawn(seed, 8, 3)
    had = marginal(first, chance())
    second = Situation(first.now_s + 1e3, drawn(other, 8, 3).jobs, first.catalogue, 3, had)
    made = settled(second, marginal(second, chance()))
    types, grants = dict(had.types), dict(had.grants)
    for change in changes(second, made):
        if change.verb is PricedVerb.RELEASE:
            del types[change.node]
        elif change.verb is PricedVerb.PROVISION:
            types[change.node] = change.type
        elif change.key is not None and change.verb is PricedVerb.LAPSE:
            del grants[change.key]
        elif change.key is not None:
            grants[change.key] = Grant(change.node, change.gpus)
    assert (types, grants) == (dict(made.types), dict(made.grants))


def test_every_preset_is_listed_with_its_settings() -> None:
    assert list(PRICED) == list(SETTINGS)
    for name in PRICED:
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
