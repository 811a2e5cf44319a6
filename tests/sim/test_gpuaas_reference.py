"""The five instances against what the released program (GPUScheduler) computed for them.

Its greedy and first-principle methods are reproduced to the cent, and so is its local search from
the greedy schedule, where nothing is drawn. The randomised ones draw other numbers from the same
chances, and are held to 1 % (5 % where most of the cost is tardiness, whose chances are wide).
"""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

import pytest

from dlq_master.policy.registry.renting import build
from dlq_simulator.priced.instance import RentingInstance, instance_of
from dlq_simulator.priced.world import World
from dlq_simulator.traces import read_trace
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.speed import Speed
from support.extent import LONG, spread

ROOT = Path(__file__).parents[1] / "data" / "traces" / "gpuaas"
INSTANCES = ("exp-10-100-0", "exp-10-100-1", "high-10-100-0", "high-10-100-1", "veryhigh-10-100-0")
REFERENCE = {"reading": "reference"}
ONE = REFERENCE | {"elite": "1"}
# iter=1, in which nothing is drawn. The last one is of the program without its seventh
# neighbourhood; with it the program deals GPUs twice, and prints 26971.3.
LOCAL_FROM_GREEDY = dict(zip(INSTANCES, (2297.12, 2013.1, 2254.9, 1981.99, 29080.0), strict=True))
EACH = pytest.mark.parametrize("name", spread(INSTANCES, 2))
# The last one takes a thousand iterations: two thirds of the time of all.
CHEAP = INSTANCES if LONG else INSTANCES[:-1]


@cache
def instance(name: str) -> RentingInstance:
    trace = read_trace(str(ROOT / name / "Lof_Selectjobs.csv.gz"))
    return instance_of(trace, read_cluster(str(ROOT / "table_2.toml")), Speed())


@cache
def costs(name: str) -> dict[str, float]:
    """Total $ by the program's name of the method."""
    rows = csv.reader((ROOT / name / "reference_costs.csv").read_text().splitlines())
    return {row[0].split("_schedule")[0]: float(row[4]) for row in rows}


@cache
def ours(name: str, policy: str, settings: tuple[tuple[str, str], ...] = ()) -> float:
    """As it decides: at submits and completions only, and changes cost nothing."""
    return World(instance(name), build(policy, dict(settings)), interval_s=math.inf).run().total


def told(name: str, words: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings, with the iterations that the reference had on this instance."""
    iterations = "1000" if name.startswith("veryhigh") else "100"
    return tuple(sorted((words | {"iterations": iterations}).items()))


@EACH
@pytest.mark.parametrize(
    ("theirs", "policy"),
    [("FIFO", "gpuaas-fifo"), ("EDF", "gpuaas-edf"), ("Priority", "gpuaas-ps")],
)
def test_first_principle_methods_cost_the_same_to_the_digit(
    name: str, theirs: str, policy: str
) -> None:
    assert ours(name, policy) == pytest.approx(costs(name)[theirs], rel=5e-6)


@EACH
def test_greedy_costs_the_same_to_the_digit(name: str) -> None:
    assert ours(name, "gpuaas-greedy", tuple(REFERENCE.items())) == pytest.approx(
        costs(name)["Greedy"], rel=5e-6
    )


@EACH
def test_local_search_from_the_greedy_schedule_costs_the_same_to_the_digit(name: str) -> None:
    words = tuple(sorted((REFERENCE | {"iterations": "1"}).items()))
    assert ours(name, "gpuaas-local-search", words) == pytest.approx(
        LOCAL_FROM_GREEDY[name], rel=5e-6
    )


@pytest.mark.parametrize("name", spread(CHEAP, 1))
@pytest.mark.parametrize(
    ("theirs", "policy", "words"),
    [
        ("RandomGreedy", "gpuaas-randomized", REFERENCE),
        ("LocalSearch", "gpuaas-local-search", REFERENCE),
        ("PathRelinking", "gpuaas-path-relinking", ONE),
        ("PathRelinking", "gpuaas-path-relinking", {}),  # the paper's, which relinks
    ],
)
def test_randomised_methods_cost_as_much_within_their_chances(
    name: str, theirs: str, policy: str, words: dict[str, str]
) -> None:
    within = 0.05 if name.startswith("veryhigh") else 0.01
    if theirs not in costs(name):
        assert (theirs, name) == ("LocalSearch", "veryhigh-10-100-0")
        return
    found = ours(name, policy, told(name, words))
    assert found == pytest.approx(costs(name)[theirs], rel=within)


@pytest.mark.parametrize("name", spread(INSTANCES, 1))
def test_the_default_is_below_all_of_them(name: str) -> None:
    default = ours(name, "dlq")
    named = [ours(name, "gpuaas-greedy"), ours(name, "gpuaas-edf")]
    if name in CHEAP:
        named.append(ours(name, "gpuaas-randomized", told(name, {})))
        named.append(ours(name, "gpuaas-path-relinking", told(name, {})))
    best = min([*costs(name).values(), *named])
    assert default < best
    if name.startswith("veryhigh"):
        assert default <= 0.8 * best
