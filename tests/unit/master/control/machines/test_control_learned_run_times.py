"""The models of run times on rented machines: a master that is killed again and again rents as one
that never was.

Two masters hear the same, and the second is killed after every job. Its ended jobs have left memory
by then. What both know, and what both decide, has to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import RetentionConfig
from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines import renting, run_times
from dlq_master.control.pool_config import RentingConfig
from dlq_master.control.stimuli import AskedLateness, SetPolicy
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.store.batch import Batch
from dlq_master.store.stored_tables import LESSONS
from support.master_harness import ROOT, known
from support.rented import HOUR_S, MADE, SPOT, Site

FEW = RetentionConfig(ended_kept=Seconds(1.0))
POOLS = (replace(SPOT, most=8), replace(SPOT, name="fast", speed=2.0, price_per_hour=24.0, most=8))
LOAD = ("bert", "vgg", "vgg")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


def opened(policy: str = "dlq") -> Site:
    """An own node, two pools, and a memory that forgets ended jobs."""
    site = Site(*POOLS, own=4, renting=RentingConfig(policy=policy))
    site.master.config = replace(site.master.config, retention=FEW)
    return site


def run(site: Site, number: int) -> None:
    """A job on 1 to 4 GPUs of the own node, with its steps; GPUs help with two thirds of it."""
    assert site.own is not None
    gpus, steps = 1 + number % 4, 100 * (1 + number % 5)
    job_id = site.master.submit(
        gpus, family=LOAD[number % 3], step_count=steps, request_id=f"f{number}"
    ).job_id
    site.tick()
    site.own.obey()
    key = AttemptKey(job_id, 1)
    site.own.start(key)
    site.own.report()
    for _ in range(10):
        site.tick(steps * (2 / gpus + 1) / 30)
    site.own.exit(key, 0)
    site.own.report()
    site.tick(2.0)


def late(site: Site, number: int) -> JobId:
    """Nobody says how long it runs."""
    lateness = AskedLateness(100.0 / HOUR_S, after_s=100.0)
    return site.master.submit(
        4,
        family=("vgg", "bert", "new")[number % 3],
        step_count=1000 * (1 + number),
        lateness=lateness,
        request_id=f"l{number}",
    ).job_id


def decided(site: Site, jobs: int = 14, *, kills: bool) -> tuple[object, object]:
    """What is rented in the end, and the run times behind it."""
    for number in range(jobs):
        run(site, number)
        if kills:
            site.crashed()
    assert site.own is not None
    site.master.submit(4, run_estimate_s=10 * HOUR_S, request_id="long")
    waiting = [late(site, number) for number in range(5)]
    for _ in range(3):
        site.tick()
        if kills:
            site.crashed()
    rented = [(one.pool, one.jobs, one.asked_s) for one in site.machines().values()]
    return sorted(rented), tables(site, waiting)


def a_turn(site: Site) -> Turn:
    return Turn(site.master.state, site.master.store, site.master.clock.now_s(), WIRING)


def tables(site: Site, jobs: list[JobId]) -> object:
    """What is left of each by pool and GPUs, as the models have it now."""
    found = run_times.run_times(a_turn(site)).left_s([site.master.job(job_id) for job_id in jobs])
    return [table.tolist() for table in found]


@pytest.mark.parametrize("policy", ["dlq", "gpuaas-path-relinking"])
def test_a_master_that_is_killed_rents_as_before(policy: str) -> None:
    lives, dies = opened(policy), opened(policy)
    rented, times = decided(lives, kills=False)
    assert decided(dies, kills=True) == (rented, times)
    assert rented
    assert known(dies.master.state.cluster) == known(lives.master.state.cluster)
    ran = lives.master.state.cluster.ran
    assert [one.family for one in ran] == [f"alice/{LOAD[number % 3]}" for number in range(14)]
    assert len(dies.master.state.cluster.jobs) < len(ran), "its jobs have left memory"
    assert times != tables(opened(), []), "something was learned"


def test_methods_draw_the_same_after_a_kill() -> None:
    site = opened()
    before = renting.draw(a_turn(site)).random(5).tolist()
    site.crashed()
    assert renting.draw(a_turn(site)).random(5).tolist() == before
    site.tick()
    assert renting.draw(a_turn(site)).random(5).tolist() != before


def test_a_database_without_these_rows_teaches_what_its_jobs_say() -> None:
    site = opened()
    site.master.config = replace(site.master.config, retention=RetentionConfig())
    for number in range(6):
        run(site, number)
    before = [one._replace(at_s=0.0) for one in site.master.state.cluster.ran]
    old = Batch()
    store = site.master.store
    old.drop(LESSONS, *(row.name for row in store.load().lessons if row.kind == "machine"))
    store.write(old)
    site.crashed()
    assert site.master.state.cluster.ran.total == 0
    tables(site, [])
    assert [one._replace(at_s=0.0) for one in site.master.state.cluster.ran] == before
    site.tick()
    assert [row.name for row in store.load().lessons if row.kind == "machine"] == ["machine/0"]
    run(site, 6)
    assert site.master.state.cluster.ran.total == 7, "each counts once"


def test_jobs_that_end_in_one_turn_count_once_each() -> None:
    site = opened()
    assert site.own is not None
    keys = [
        AttemptKey(site.master.submit(1, request_id=f"e{number}").job_id, 1) for number in range(3)
    ]
    site.tick()
    site.own.obey()
    for key in keys:
        site.own.start(key)
    site.own.report()
    site.tick(60.0)
    for key in keys:
        site.own.exit(key, 0)
    site.own.report()
    tables(site, [])
    assert sorted(one.job for one in site.master.state.cluster.ran) == ["1", "2", "3"]


def test_no_more_ended_jobs_are_asked_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "KEPT", 2)
    site = opened()
    site.master.config = replace(site.master.config, retention=RetentionConfig())
    for number in range(4):
        run(site, number)
    site.master.state.cluster.ran.clear()
    site.master.state.cluster.ran.total = 0
    site.master.state.machines.recalled = False
    site.tick()
    tables(site, [])
    assert [one.job for one in site.master.state.cluster.ran] == ["3", "4"]


def test_ended_jobs_that_teach_nothing_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "runs_of", lambda *_told: [])
    site = opened()
    site.master.config = replace(site.master.config, retention=RetentionConfig())
    run(site, 0)
    site.crashed()
    read: list[JobId] = []
    attempts = site.master.store.attempts

    def reads(job_id: JobId) -> tuple[Attempt, ...]:
        read.append(job_id)
        return attempts(job_id)

    monkeypatch.setattr(site.master.store, "attempts", reads)
    for number in range(1, 4):
        run(site, number)
    assert read == [1]


def test_another_policy_knows_the_same() -> None:
    site = opened()
    run(site, 0)
    before = known(site.master.state.cluster)["machine runs"]
    tables(site, [])
    site.master.ask(SetPolicy(caller=ROOT, request_id="p", policy="chronus", settings=()))
    run(site, 1)
    assert known(site.master.state.cluster)["machine runs"] != before
    assert site.master.state.cluster.ran.total == 2
    site.crashed()
    assert site.master.state.cluster.ran.total == 2


def test_without_pools_nothing_is_written() -> None:
    site = Site(SPOT, own=4)
    site.master.state.config = replace(site.master.state.config, pools=())
    run(site, 0)
    assert site.master.state.cluster.ran.total == 0
