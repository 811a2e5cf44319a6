"""The Hierarchical Method: jobs and nodes are dealt to controllers, and each solves its program."""

from __future__ import annotations

import numpy as np
import pytest

from dlq_master.policy.priced.compared import hierarchical as module
from dlq_master.policy.priced.compared.hierarchical import hierarchical, parts
from dlq_master.policy.priced.compared.milp import step_milp
from dlq_master.policy.priced.greedy.greedy import greedy
from dlq_master.policy.priced.rules import Rules
from dlq_master.policy.priced.schedules import faults
from unit.master.policy.priced.drawing import PLAIN, chance, drawn, job, situation


@pytest.mark.parametrize(
    ("nodes", "dealt"), [(3, [3]), (5, [5]), (9, [9]), (10, [5, 5]), (12, [6, 6]), (15, [5, 5, 5])]
)
def test_every_controller_has_about_five_nodes(nodes: int, dealt: list[int]) -> None:
    assert [part.nodes for part in parts(drawn(1, 3, nodes))] == dealt


def test_jobs_are_dealt_round_robin_in_the_order_of_their_submits() -> None:
    dealt = [[job.key for job in part.jobs] for part in parts(drawn(1, 7, 10))]
    assert dealt == [[0, 2, 4, 6], [1, 3, 5]]


def test_two_controllers_share_no_node_and_forget_no_job() -> None:
    jobs = [job(n, 2000.0, 1000.0, 600.0, np.inf, 400.0) for n in range(6)]
    asked = situation(*jobs, nodes=10)
    made = hierarchical(asked, chance())
    assert faults(asked, made) == []
    assert sorted(made.grants) == [0, 1, 2, 3, 4, 5]
    first = {made.grants[key].node for key in (0, 2, 4)}
    second = {made.grants[key].node for key in (1, 3, 5)}
    assert max(first) < 5 <= min(second)


def test_one_controller_is_within_its_gap_of_the_program() -> None:
    asked = situation(*(job(n, 900.0 + 50 * n, 1000.0, 600.0, np.inf, 400.0) for n in range(4)))
    exact = step_milp(asked, Rules())
    found = step_milp(asked, Rules(), module.EFFORT)
    assert exact.cost <= found.cost <= exact.cost * 1.05 + 1e-6
    assert hierarchical(asked, chance()).grants.keys() == found.schedule.grants.keys()  # type: ignore[union-attr]


def test_the_gap_is_a_share_of_f_obj() -> None:
    # Two of three must wait: without that constant part the solver's own objective is negative.
    asked = situation(*(job(n, -1e4, 1e3, np.inf, np.inf, np.inf) for n in range(3)), nodes=1)
    solved = step_milp(asked, Rules())
    assert 0.0 < solved.bound <= solved.cost * (1 + 1e-9)


def test_a_program_that_is_too_large_is_left_to_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = drawn(3, 6, 3)
    monkeypatch.setattr(module, "MOST_CHOICES", module.choices(asked) - 1)
    monkeypatch.setattr(module, "step_milp", None)
    assert hierarchical(asked, chance()) == greedy(asked, chance())


def test_choices_are_jobs_times_nodes_times_shapes() -> None:
    asked = situation(job(0, 10.0, 1.0), job(1, 10.0, 1.0), nodes=3)
    assert sum(kind.gpus for kind in PLAIN.types) == 7
    assert module.choices(asked) == 2 * 3 * 7
