"""The program of the Chronus paper: its optimum by hand and by enumeration, its verdicts, and what
is done when it gives no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from dlq_master.model.jobs.band import Segment
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import Steps, soft, strict
from dlq_master.model.plan import NextSlot
from dlq_master.model.view import View
from dlq_master.model.words.promise_words import no_promise
from dlq_master.policy.offload import hurried, timed
from dlq_master.policy.partition.slots import next_slot
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    last_slots,
    needed,
    runtime_s,
    width,
    within,
)
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.plan import SlotPlan, faults, keeps_promise
from dlq_master.policy.promise.solver import printed, printed_cycle
from dlq_master.policy.promise.solver.budget import ProgramBudget
from dlq_master.policy.promise.solver.printed import Solved, solved, time_indexed
from dlq_master.policy.promise.solver.selector import SlotSource
from dlq_master.policy.promise.verdicts.admission import PromiseBook
from dlq_master.policy.promise.verdicts.printed_admission import admit_by_program
from support.builders import World, a_job
from support.extent import some
from unit.master.policy.promise.drawing import drawn, grid_of

LIMIT_S = 60.0
LEASE_S = 1200.0  # 20 minutes
PAPER = Grid(term_s=LEASE_S, capacity=(8,), whole_leases=True)  # one node of 8 GPUs


def by_enumeration(jobs: Sequence[SloJob], grid: Grid) -> float | None:
    """The most reward of all choices of leases, by equations (1) to (6); None: there is none.

    Each job takes exactly RL leases before one of its deadlines. A job without a promise may take
    none.
    """
    choices = []
    for job in jobs:
        last = len(job.steps) - 1 if job.promised is None else job.promised
        count = needed(runtime_s(job), grid.term_s)
        ways: dict[tuple[int, ...], float] = {} if job.promised is not None else {(): 1.0}
        for step in within(job, grid):
            if step <= last:
                for held in combinations(range(last_slots(job, step, grid)), count):
                    ways.setdefault(held, job.steps[step].reward)  # the first step earns most
        choices.append((width(job, grid), ways))
    return _best(choices, [grid.at(slot) for slot in range(40)])


def _best(
    choices: Sequence[tuple[int, dict[tuple[int, ...], float]]], free: Sequence[int]
) -> float | None:
    """Of one job after the other."""
    if not choices:
        return 0.0
    (wide, ways), *others = choices
    found = []
    for held, reward in ways.items():
        if all(free[slot] >= wide for slot in held):
            left = [gpus - wide * (slot in held) for slot, gpus in enumerate(free)]
            rest = _best(others, left)
            if rest is not None:
                found.append(reward + rest)
    return max(found, default=None)


@pytest.mark.parametrize("seed", some(range(40), 10))
def test_its_optimum_is_that_of_all_choices_of_leases(seed: int) -> None:
    jobs, grid = drawn(seed, 3, most_slots=3), grid_of(4, whole=bool(seed % 2))
    if seed % 3 == 0:
        jobs = [job._replace(promised=len(job.steps) - 1) for job in jobs]
    jobs = [job for job in jobs if within(job, grid)]
    made, best = time_indexed(jobs, grid, LIMIT_S), by_enumeration(jobs, grid)
    if best is None:
        assert made.impossible
        assert made.plan is None
    else:
        assert made.optimal
        assert made.objective == pytest.approx(best)


@pytest.mark.parametrize("seed", some(range(30), 8))
def test_a_deadline_is_promised_where_any_choice_of_leases_keeps_all(seed: int) -> None:
    """The fluid test and the holes of the cached solution answer as the program itself would."""
    grid = grid_of(4, whole=bool(seed % 2))
    book = PromiseBook(grid=grid)
    for job in drawn(seed, 4, most_slots=2):
        reach = within(job, grid)
        if not reach:
            continue
        own = job._replace(promised=reach[-1])
        verdict = admit_by_program(book, job, None, ProgramBudget(LIMIT_S))
        there_is = by_enumeration([*book.jobs, own], grid) is not None
        assert verdict.guaranteed == there_is, (job, verdict.by)
        if verdict.guaranteed:
            assert verdict.step == reach[-1]
            assert faults(verdict.book.plan, verdict.book.jobs, grid) == []
        book = verdict.book


def soft_job(key: str, gpus: int, run_s: float) -> SloJob:
    """By the generator of section 4.1: D_1 is 4/3 of the run time, then 1.1, 1.2 and 1.5 times."""
    first_s = run_s * 4 / 3
    rewards = ((1.0, 100.0), (1.1, 80.0), (1.2, 50.0), (1.5, 20.0))
    return SloJob(key, gpus, run_s, soft([(first_s * times, worth) for times, worth in rewards]))


def test_two_soft_jobs_of_an_hour_on_one_node() -> None:
    """RL = 3, DL = 4, 4, 4, 6 leases of 20 minutes. One job has leases 0 to 2 and earns 100, the
    other has the next three and earns 20.
    """
    jobs = [soft_job("a", 8, 3600.0), soft_job("b", 8, 3600.0)]
    assert [last_slots(jobs[0], step, PAPER) for step in range(4)] == [4, 4, 4, 6]
    made = time_indexed(jobs, PAPER, LIMIT_S)
    assert (made.objective, made.optimal) == (120.0, True)
    assert made.plan is not None
    assert faults(made.plan, jobs, PAPER) == []
    ends = sorted(slots[-1].end for slots in made.plan.segments.values())
    assert ends in ([3, 6], [4, 6])  # the first by its first deadline, the other by its last


def test_hostile_jobs_are_rounded_up() -> None:
    """Equation (6): 3 GPUs count as 4. Two such jobs fill a node, a third has to wait."""
    jobs = [SloJob(key, 3, 1200.0, strict(1200.0)) for key in "abc"]
    assert time_indexed(jobs, PAPER, LIMIT_S).objective == 201.0
    finer = replace(PAPER, node_gpus=1)
    assert time_indexed(jobs, replace(finer, capacity=(9,)), LIMIT_S).objective == 300.0


def test_without_round_up_a_slot_is_promised_by_the_gpus_that_jobs_ask_for() -> None:
    """3 + 3 + 2 GPUs are a node, and rounded up 10. There is one slot before the deadline."""
    jobs = [a_job(at, gpus, duration_estimate_s=600.0, steps=strict(2500.0))
            for at, gpus in ((1, 3), (2, 3), (3, 2))]  # fmt: skip
    verdicts = {}
    for choice in ("on", "off"):
        world = World("chronus-paper", 1, round_up=choice).submit(*jobs).decide()
        verdicts[choice] = [world.job(at).verdict for at in (1, 2, 3)]
    assert verdicts == {"on": ["holes", "holes", "fluid"], "off": ["holes"] * 3}


def test_rounding_to_whole_leases_alone_refuses_a_job() -> None:
    """25 minutes take two leases, and 38 minutes have one."""
    book = PromiseBook(grid=PAPER)
    job = SloJob("a", 1, 1500.0, strict(2280.0))
    assert admit_by_program(book, job, None, ProgramBudget(LIMIT_S)).by is VerdictGround.REACH


def test_the_last_deadline_is_promised_and_the_best_is_planned() -> None:
    verdict = admit_by_program(
        PromiseBook(grid=PAPER), soft_job("a", 8, 3600.0), None, ProgramBudget(LIMIT_S)
    )
    assert (verdict.by, verdict.step) == (VerdictGround.HOLES, 3)
    assert verdict.book.plan.segments["a"] == (Segment(0, 3),)


def test_what_pauses_cost_is_given_in_leases() -> None:
    """Job a has leases 0 and 3 left of its 4. Its work and its first pause fill two, and the second
    pause asks for a third, which it has not: no plan. With one lease more it has.
    """
    held = SlotPlan({"b": (Segment(1, 3),)})
    other = SloJob("b", 4, 20.0, strict(30.0), promised=0)
    job = SloJob("a", 4, 19.0, strict(40.0), resume_s=1.0, promised=0)
    made = solved([job, other], grid_of(4), ProgramBudget(LIMIT_S), held, objective=False)
    assert (made.plan, made.impossible) == (None, False)
    later = job._replace(steps=strict(50.0))
    made = solved([later, other], grid_of(4), ProgramBudget(LIMIT_S), held, objective=False)
    assert made.plan is not None
    assert made.plan.segments["b"] == held.segments["b"]
    assert keeps_promise(later, made.plan.segments["a"], grid_of(4))


# --- no answer ------------------------------------------------------------------------------------


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The program gives no answer; how many jobs each call chose anew."""
    asked: list[int] = []

    def no_answer(jobs: Sequence[SloJob], *_: object, **__: object) -> Solved:
        asked.append(len(jobs))
        return Solved(None, 0.0, 0.0, False, stopped=True)

    monkeypatch.setattr(printed, "time_indexed", no_answer)
    return asked


def test_an_answer_in_time_is_not_called_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lease more for the pauses there is no plan: that proves nothing of the job without."""
    monkeypatch.setattr(printed, "time_indexed", lambda *_, **__: Solved(None, 0.0, 0.0, False))
    wide = SloJob("a", 8, 1200.0, strict(2400.0), promised=0)
    book = PromiseBook(grid=PAPER, jobs=(wide,), plan=SlotPlan({"a": (Segment(0, 1),)}))
    now = SloJob("b", 8, 1200.0, strict(1200.0))
    assert admit_by_program(book, now, None, ProgramBudget(LIMIT_S)).by is VerdictGround.PLAN


def test_a_job_without_room_in_the_cached_solution_is_refused_by_the_limit(
    silent: list[int],
) -> None:
    wide = SloJob("a", 8, 1200.0, strict(2400.0), promised=0)
    book = PromiseBook(grid=PAPER, jobs=(wide,), plan=SlotPlan({"a": (Segment(0, 1),)}))
    now = SloJob("b", 8, 1200.0, strict(1200.0))
    verdict = admit_by_program(book, now, None, ProgramBudget(LIMIT_S))
    assert (verdict.by, verdict.guaranteed, silent) == (VerdictGround.LIMIT, False, [2])
    words = no_promise(verdict.by.value)
    assert words == "no answer of the program within the limit, and its cached solution has no room"
    later = SloJob("c", 8, 1200.0, strict(2400.0))
    assert admit_by_program(book, later, None, ProgramBudget(LIMIT_S)).by is VerdictGround.HOLES


def test_the_program_moves_the_cached_solution_where_it_answers() -> None:
    wide = SloJob("a", 8, 1200.0, strict(2400.0), promised=0)
    book = PromiseBook(grid=PAPER, jobs=(wide,), plan=SlotPlan({"a": (Segment(0, 1),)}))
    verdict = admit_by_program(
        book, SloJob("b", 8, 1200.0, strict(1200.0)), None, ProgramBudget(LIMIT_S)
    )
    assert verdict.by is VerdictGround.PROGRAM
    assert verdict.book.plan.segments == {"a": (Segment(1, 2),), "b": (Segment(0, 1),)}


def promised(*jobs: SloJob) -> list[SloJob]:
    return [job._replace(promised=len(job.steps) - 1) for job in jobs]


def test_a_cycle_that_earns_all_there_is_asks_no_solver(silent: list[int]) -> None:
    jobs = promised(soft_job("a", 8, 3600.0))
    made = printed_cycle.printed_cycle(
        jobs, PAPER, SlotPlan({"a": (Segment(0, 3),)}), ProgramBudget(LIMIT_S)
    )
    assert (made.source, made.objective, silent) == (SlotSource.KEPT, 100.0, [])


def test_a_better_solution_takes_the_place_of_the_cached_one() -> None:
    jobs = promised(soft_job("a", 8, 3600.0))
    late = SlotPlan({"a": (Segment(3, 6),)})
    made = printed_cycle.printed_cycle(jobs, PAPER, late, ProgramBudget(LIMIT_S))
    assert (made.source, made.objective, made.bound) == (SlotSource.PRINTED, 100.0, 100.0)
    any_will_do = printed_cycle.printed_cycle(
        jobs, PAPER, late, ProgramBudget(LIMIT_S), objective=False
    )
    assert (any_will_do.source, any_will_do.objective) == (SlotSource.KEPT, 20.0)


def test_without_an_answer_the_served_keep_their_slots_and_then_all_do(silent: list[int]) -> None:
    """First both jobs are chosen anew, then only the one that could earn more."""
    jobs = promised(soft_job("a", 8, 3600.0), soft_job("b", 8, 3600.0))
    cached = SlotPlan({"a": (Segment(0, 3),), "b": (Segment(3, 6),)})
    made = printed_cycle.printed_cycle(jobs, PAPER, cached, ProgramBudget(LIMIT_S))
    assert (made.source, made.plan, made.objective) == (SlotSource.CACHED, cached, 120.0)
    assert silent == [2, 1]


def test_a_lost_node_leaves_what_can_be_kept(silent: list[int]) -> None:
    jobs = promised(soft_job("a", 8, 3600.0), soft_job("b", 8, 3600.0))
    cached = SlotPlan({"a": (Segment(0, 3),), "b": (Segment(0, 3),)})  # there were two nodes
    made = printed_cycle.printed_cycle(jobs, PAPER, cached, ProgramBudget(LIMIT_S))
    assert (made.source, made.broken) == (SlotSource.CACHED, ())
    assert faults(made.plan, jobs, PAPER) == []


def slo(job_id: int, run_s: float, steps: Steps) -> Job:
    return a_job(job_id, 8, duration_estimate_s=run_s, steps=steps)


def test_the_plan_of_a_slot_says_that_the_cached_solution_was_used(silent: list[int]) -> None:
    world = World("chronus-paper", 1, None)
    late = soft([(6000.0, 100.0), (12_000.0, 20.0)])
    world.submit(slo(1, 4000.0, late), slo(2, 4000.0, late)).decide()
    assert [world.job(at).verdict for at in (1, 2)] == ["holes", "holes"]
    world.now_s = 1175.0
    rules = world.policy.promises
    assert rules is not None
    told, *_ = next_slot(View(world.cluster, world.now_s), rules)
    assert isinstance(told, NextSlot)
    assert "no answer within the limit: cached solution used" in told.reason.detail
    assert silent
    assert [world.job(at).promised for at in (1, 2)] == [1, 1]


def test_after_one_silence_a_plan_asks_no_more(silent: list[int]) -> None:
    """Whoever is judged in the same plan hears of the cached solution at once."""
    world = World("chronus-paper", 1, None)
    world.submit(slo(1, 2200.0, strict(6000.0))).decide()
    hasty = strict(3700.0)
    world.submit(slo(2, 1000.0, hasty), slo(3, 1000.0, hasty)).decide()
    assert [world.job(at).verdict for at in (2, 3)] == ["limit", "limit"]
    assert silent == [2]


# --- one budget for a decision --------------------------------------------------------------------


def a_hard_batch(count: int) -> World:
    """After a promise that may lie anywhere come jobs for which it would have to move."""
    world = World("chronus-paper", 1, None)
    world.submit(slo(1, 2200.0, strict(6000.0))).decide()
    return world.submit(*[slo(at, 1000.0, strict(3700.0)) for at in range(2, 2 + count)])


class Hard:
    """The program takes so many seconds for a proof that there is no solution. `limits`: of each
    call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, took_s: float) -> None:
        self.now_s, self.took_s, self.limits = 100.0, took_s, list[float]()
        monkeypatch.setattr(printed, "time_indexed", self)

    def __call__(self, _jobs: object, _grid: Grid, limit_s: float, **_: object) -> Solved:
        self.limits.append(limit_s)
        self.now_s += self.took_s
        return Solved(None, 0.0, 0.0, False, impossible=True)

    def judged(self, world: World) -> list[str]:
        """The verdicts of a batch by a planner, which hands in a clock."""
        world.policy = timed(world.policy, lambda: self.now_s)
        world.decide()
        return [job.verdict for job in world.cluster.jobs.values() if job.job_id > 1]


def test_all_calls_of_a_batch_share_its_time_and_each_job_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hard = Hard(monkeypatch, took_s=1.5)
    assert hard.judged(a_hard_batch(20)) == ["proven"] * 3 + ["limit"] * 17
    assert hard.limits == [4.0, 2.5, 1.0]


def test_without_a_clock_only_a_call_that_ends_at_its_limit_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hard, world = Hard(monkeypatch, took_s=1.5), a_hard_batch(20)
    world.decide()
    assert hard.limits == [4.0] * 20
    assert {job.verdict for job in world.cluster.jobs.values() if job.job_id > 1} == {"proven"}


def test_a_cycle_and_its_smaller_program_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def no_answer(_jobs: object, _grid: Grid, limit_s: float, **_: object) -> Solved:
        limits.append(limit_s)
        return Solved(None, 0.0, 0.0, False, stopped=True)

    monkeypatch.setattr(printed, "time_indexed", no_answer)
    jobs = promised(soft_job("a", 8, 3600.0), soft_job("b", 8, 3600.0))
    cached = SlotPlan({"a": (Segment(0, 3),), "b": (Segment(3, 6),)})
    printed_cycle.printed_cycle(jobs, PAPER, cached, ProgramBudget(4.0))
    assert limits == [3.0, 1.0]


def test_a_decision_that_must_not_take_long_asks_no_program(silent: list[int]) -> None:
    world = a_hard_batch(2)
    world.policy = hurried(world.policy)
    assert world.policy.settings["solver_s"] == "0"
    world.decide()
    assert ([world.job(at).verdict for at in (2, 3)], silent) == (["limit", "limit"], [])
    chronus = World("chronus", 1, None).policy
    assert hurried(chronus) is chronus
