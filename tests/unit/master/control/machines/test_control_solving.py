"""Programs that choose machines: the loop goes on while a process beside it solves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dlq_master.control.pool_config import RentingConfig
from dlq_master.control.stimuli import CancelJob
from dlq_master.model.ids import JobId
from dlq_master.model.plan import Plan, Provision
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.planner.plans import Answer
from dlq_master.planner.schedules import RENT, read_schedule, solved, write_problem
from dlq_master.policy.priced.compared import milp
from dlq_master.policy.priced.names import PROGRAMS
from dlq_master.policy.registry.renting import build_live
from support.inline_planner import InlinePlanner
from support.rented import HOUR_S, MADE, SPOT, Site
from unit.master.policy.priced.drawing import chance, drawn

WHY = Reason(ReasonCode.RENTED)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Solved(Site):
    """A site whose programs are solved when the test says so."""

    def __init__(self, method: str = "gpuaas-milp") -> None:
        super().__init__(replace(SPOT, most=4), own=4, renting=RentingConfig(policy=method))
        self.helper = InlinePlanner()
        self.attend()
        self.master.submit(4, run_estimate_s=10 * HOUR_S)
        self.tick()

    def attend(self) -> None:
        """The process of a master that has just started."""
        self.helper = InlinePlanner()
        self.master.state.machines.solving.process = self.helper

    def late(self) -> JobId:
        return self.submit(4, due_s=1.0, weight=1000.0)

    def answer(self) -> None:
        self.heard(self.helper.answer())

    def heard(self, answer: Answer) -> None:
        self.master.state.machines.solving.heard(answer)

    def rented_for(self) -> list[tuple[int, ...]]:
        return [one.jobs for one in self.machines().values()]


@pytest.fixture
def unsolvable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is solved on the loop fails the test."""

    def never(*_told: Any) -> None:
        raise AssertionError("solved on the loop")

    monkeypatch.setattr(milp, "_Model", never)


@pytest.mark.usefixtures("unsolvable")
@pytest.mark.parametrize("method", PROGRAMS)
def test_the_loop_goes_on_while_a_program_is_solved(method: str) -> None:
    site = Solved(method)
    site.late()
    for _ in range(5):
        site.tick()
        assert site.master.submit(1, run_estimate_s=60.0).job_id
    assert site.helper.questions == [RENT], "one question, however many looks"
    assert site.rented_for() == []


@pytest.mark.parametrize("method", PROGRAMS)
def test_the_next_look_takes_the_answer(method: str) -> None:
    site = Solved(method)
    job_id = site.late()
    site.tick()
    assert site.rented_for() == []
    site.answer()
    site.tick()
    assert site.rented_for() == [(job_id,)]
    site.tick()
    assert site.helper.questions == [RENT], "nobody waits any more"


def test_an_answer_for_jobs_that_have_gone_rents_for_the_others() -> None:
    site = Solved()
    gone, stays = site.late(), site.late()
    site.tick()
    site.master.edit(CancelJob, gone)
    site.answer()
    site.tick()
    assert site.rented_for() == [(stays,)]


@pytest.mark.usefixtures("unsolvable")
@pytest.mark.parametrize("how", ["fault", "not ready"])
def test_without_an_answer_the_default_decides_at_once(how: str) -> None:
    site = Solved()
    site.helper.up = how == "fault"
    job_id = site.late()
    site.tick()
    if how == "fault":
        assert site.rented_for() == []
        site.heard(Answer(site.master.state.machines.solving.number, fault="it hung"))
        site.tick()
    assert site.rented_for() == [(job_id,)]


def test_a_master_that_is_killed_meanwhile_decides_anew() -> None:
    site = Solved()
    job_id = site.late()
    site.tick()
    before = site.helper.answer()
    site.crashed()
    site.attend()
    site.heard(before)
    site.tick()
    assert site.rented_for() == [], "it was not asked by this master"
    site.answer()
    site.tick()
    assert site.rented_for() == [(job_id,)]


def test_an_answer_to_another_question_is_none() -> None:
    site = Solved()
    site.late()
    site.tick()
    site.heard(Answer(99, (Plan(),)))
    site.tick()
    assert site.master.state.machines.solving.asked


@pytest.mark.parametrize("method", PROGRAMS)
def test_the_schedule_of_the_other_process_is_that_of_the_method(method: str) -> None:
    asked = drawn(4, 5, 2)
    found = read_schedule(solved(write_problem(method, {}, asked)), asked.catalogue)
    made = build_live(method, {})(asked, chance())
    for job, grant in made.grants.items():
        there = found.grants[job]
        assert (found.types[there.node], there.gpus) == (made.types[grant.node], grant.gpus)
    assert found.grants.keys() == made.grants.keys()


@pytest.mark.parametrize(
    ("pool", "gpus"), [("none of ours", (1,)), ("NC6", (2,)), ("NC12", (1, 2)), ("NC6", (0,))]
)
def test_machines_that_cannot_be_are_left_out(pool: str, gpus: tuple[int, ...]) -> None:
    wrong = Provision(pool, tuple(range(len(gpus))), gpus, 0.0, 0.0, WHY)
    right = Provision("NC12", (7, 8), (1, 1), 0.0, 0.0, WHY)
    found = read_schedule(Plan((wrong, right)), drawn(4, 5, 2).catalogue)
    assert (list(found.grants), list(found.types)) == ([7, 8], [1])
