"""Nothing that was learned is lost: a master that is killed again and again decides as one that
never was.

Two masters hear the same, and the second is killed after every few turns. All of its ended jobs
have left memory by then. What both know, and what both decide, has to be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import GpuTypeConfig, RetentionConfig
from dlq_master.control.stimuli import SetPolicy
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.estimates.lessons import IN_A_ROW, Lesson, Newest, Ring, newest_of
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs import type_paces
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.reward import strict
from dlq_master.model.jobs.trials import ERRING_KEPT, FAMILIES_KEPT, OUTCOMES_KEPT, RATIOS_KEPT
from dlq_master.model.order.keys import had
from dlq_master.model.resources import Request
from dlq_master.store.batch import TAUGHT, Batch
from dlq_master.store.stored_tables import LESSONS
from support.master_harness import ROOT, Master, known
from support.sim_agent import SimAgent
from unit.master.control.trials.test_control_trials import Lab

Masters = Callable[..., Master]
RUNS = 8
GPUS = (8, 4, 2, 1)


class Worked(Lab):
    """Jobs that run one after the other, each for as long as it is said."""

    kills = speaks = False

    def __init__(self, masters: Masters, policy: str, **settings: str) -> None:
        super().__init__(masters, policy, 1, **settings)
        kept = RetentionConfig(ended_kept=Seconds(1.0))
        self.master.config = replace(self.master.config, retention=kept)

    def killed(self) -> None:
        """The master is killed, and its agents come back; if this one is to be."""
        if not self.kills:
            return
        self.master.restart()
        self.master.state.placement.offloaded.planner = self.planner
        for agent in self.agents:
            agent.hello()

    def run(self, seconds: float, *, gpus: int = 8, **more: Any) -> None:
        """A job runs for so long and completes."""
        job = self.submit(gpus=gpus, **more)
        self.trains(20.0)
        self.killed()
        attempt = self.master.attempt(job.job_id)
        assert attempt.state is AttemptState.RUNNING, attempt.state
        started_s = attempt.started_time_s or 0.0
        self.trains(started_s + seconds - self.master.clock.now_s())
        self.agents[0].exit(AttemptKey(JobId(job.job_id), 1), 0)
        self.trains(30.0)
        self.killed()

    def decided(self, job_id: int) -> tuple[object, ...]:
        """What was found out and decided of a job."""
        job = self.job(job_id)
        basis = (job.duration_estimate_s, job.basis, job.margin, job.pause, job.gpu_type_promised)
        return (*basis, job.promised, job.verdict, job.slots, job.alternative, job.level)


def both(masters: Masters, policy: str, **settings: str) -> list[Worked]:
    """One that lives, and one that is killed."""
    sites = [Worked(masters, policy, **settings) for _ in range(2)]
    sites[1].kills = True
    return sites


def a_life(site: Worked) -> list[tuple[object, ...]]:
    """Families, wrong estimates, and deadlines; then jobs that have to be judged by them."""
    for at in range(RUNS):
        site.run(300.0 + 10.0 * (at % 3), run_s=250.0, family="ada/resnet")
        site.run(100.0, gpus=GPUS[at % 4], run_s=None, family=f"ada/{GPUS[at % 4]}")
    last = [
        site.submit(7200.0, gpus=8, run_s=None, family="ada/resnet"),
        site.submit(7200.0, gpus=4, run_s=900.0),
        site.submit(1300.0, gpus=8, run_s=1000.0),
    ]
    return [site.decided(job.job_id) for job in last]


@pytest.mark.parametrize("policy", ["dlq", "chronus"])
def test_a_master_that_is_killed_estimates_and_promises_as_before(
    masters: Masters, policy: str
) -> None:
    lives, dies = both(masters, policy)
    decided = a_life(lives)
    assert a_life(dies) == decided
    assert known(dies.master.state.cluster) == known(lives.master.state.cluster)
    basis = Basis(Source.HISTORY, Confidence.MEDIUM, rests_on="8 runs on H100")
    assert decided[0][:2] == (310.0, basis)
    assert len(dies.master.state.cluster.jobs) < len(lives.master.store.load().jobs) + 3


class TwoTypes(Worked):
    """A node of fast GPUs and one of slow ones, on which each step takes twice as long. Four times
    as long was declared.
    """

    speaks = True

    def __init__(self, masters: Masters, policy: str, **settings: str) -> None:
        declared = {"t4": GpuTypeConfig(speed=0.25)}
        super().__init__(lambda config: masters(replace(config, gpu_types=declared)), policy)
        slow = SimAgent(self.master, NodeId("slow"), gpus=8, gpu_type="t4-16gb")
        slow.hello()
        self.agents.append(slow)

    def beats(self, agent: SimAgent) -> None:
        self.pace = lambda _: 2.0 if agent.gpu_type == "t4-16gb" else 1.0
        super().beats(agent)

    def trains_on(self, kind: str, family: str = "ada/resnet") -> None:
        """A job tells its steps on this type, for longer than it takes to know its pace."""
        request = Request(gpus=8, gpu_type=kind)
        ask = self.master.submission(8, run_estimate_s=9000.0, family=family)
        job_id = self.master.ask(replace(ask, request=request)).job.job_id
        self.trains(100.0)
        self.killed()
        self.trains(100.0)
        agent = next(one for one in self.agents if one.gpu_type == kind)
        agent.exit(AttemptKey(job_id, 1), 0)
        self.trains(30.0)
        self.killed()


def two_types(site: TwoTypes) -> list[tuple[object, ...]]:
    """What is decided of jobs that may get either type, before the ratio is known and after."""
    found = []
    for _ in range(3):
        site.trains_on("H100")
        site.trains_on("t4-16gb")
    for family in ("ada/resnet", "bob/bert"):
        blocks = site.submit(gpus=8, run_s=50_000.0, family="")  # on the fast node
        job = site.submit(9000.0, gpus=8, run_s=3000.0, family=family)
        site.trains(20.0)
        site.killed()
        attempt = site.master.attempt(job.job_id)
        (node_id,) = attempt.lease.allocation.node_ids
        found.append((node_id, attempt.speed, attempt.pace, *site.decided(job.job_id)))
        for agent in site.agents:
            for key in list(agent.living()):
                agent.exit(key, 0)
        site.trains(30.0)
        assert site.job(blocks.job_id).ended
    return found


def test_measured_ratios_of_types_are_known_after_a_kill_and_decide_as_before(
    masters: Masters,
) -> None:
    """Each job is killed in the middle of its steps too, and teaches once."""
    lives, dies = (TwoTypes(masters, "dlq") for _ in range(2))
    dies.kills = True
    decided = two_types(lives)
    assert two_types(dies) == decided
    assert known(dies.master.state.cluster) == known(lives.master.state.cluster)
    paces = lives.master.state.cluster.profiling.paces
    assert paces.told == 6
    slow = [one[:3] for one in decided if one[0] == "slow"]
    assert slow == [("slow", 0.25, 0.5), ("slow", 0.25, None)], "as measured, and as declared"


@pytest.mark.parametrize("left", [0, 4])
def test_steps_on_gpus_that_are_gone_teach_nothing(masters: Masters, left: int) -> None:
    """An agent that starts again may find fewer GPUs than its jobs run on."""
    site = TwoTypes(masters, "dlq")
    request = Request(gpus=8, gpu_type="H100")
    ask = site.master.submission(8, run_estimate_s=9000.0, family="ada/resnet")
    job_id = site.master.ask(replace(ask, request=request)).job.job_id
    site.trains(20.0)
    agent = site.agents[0]
    agent.gpus = left
    agent.hello()
    site.trains(200.0)
    assert site.master.attempt(job_id).state is AttemptState.RUNNING
    assert site.master.state.cluster.profiling.paces.told == (1 if left else 0)


def test_more_kinds_than_are_kept_tell_their_paces_once(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kinds run at once, and there is room for one."""
    monkeypatch.setattr(type_paces, "KINDS_KEPT", 1)
    site = TwoTypes(masters, "dlq")
    jobs = [site.submit(gpus=4, run_s=9000.0, family=family).job_id for family in ("a", "b")]
    site.trains(300.0)
    assert [site.master.attempt(job_id).state for job_id in jobs] == [AttemptState.RUNNING] * 2
    assert site.master.state.cluster.profiling.paces.told == 2


def test_thresholds_and_the_order_of_gittins_are_as_before(masters: Masters) -> None:
    settings = {"thresholds": "q0.5,q0.9", "refresh": "3"}
    lives, dies = both(masters, "tiresias-gittins", **settings)
    for site in (lives, dies):
        for at in range(RUNS):
            site.run(100.0 + 50.0 * at, gpus=GPUS[at % 4], run_s=None)
    learned = [site.master.state.cluster for site in (lives, dies)]
    assert known(learned[1]) == known(learned[0])
    history = learned[0].history
    assert (history.newest.total, history.refreshed) == (RUNS, 6), "two came after the last look"
    assert learned[0].ordering.thresholds not in ((), (3200.0,))
    jobs = [JobId(number) for number in range(1, RUNS + 1)]
    ended = [[site.master.store.job(number) for number in jobs] for site in (lives, dies)]
    keys = [
        [at.key(job, had(job, None, 0.0)) for job in of if job and at.key]
        for at, of in zip(learned, ended, strict=True)
    ]
    assert keys[0] == keys[1]


def test_a_policy_that_is_set_later_knows_the_services_of_before(masters: Masters) -> None:
    lives, dies = both(masters, "dlq")
    for site in (lives, dies):
        for at in range(3):
            site.run(100.0 * (at + 1), gpus=1, run_s=None)
        gittins = SetPolicy(
            caller=ROOT,
            request_id="p1",
            policy="tiresias-gittins",
            settings=(("refresh", "3"),),
        )
        site.master.ask(gittins)
        site.killed()
    learned = [site.master.state.cluster.history.learned for site in (lives, dies)]
    assert learned[0] == learned[1]
    assert len(learned[0]) == 3


def test_a_database_without_lessons_teaches_what_its_jobs_say_once(masters: Masters) -> None:
    site = Worked(masters, "dlq")
    for _ in range(5):
        site.run(300.0, run_s=None, family="ada/resnet")
    before = known(site.master.state.cluster)
    store = site.master.store
    names = [row.name for row in store.load().lessons]
    old = Batch()
    old.drop(LESSONS, *names)
    store.write(old)
    del store._rows.meta[TAUGHT]
    for _ in range(2):  # the first writes them down
        site.master.start()
        for what in ("runs", "ratios"):
            assert known(site.master.state.cluster)[what] == before[what]


def test_rows_are_few_however_much_was_learned(masters: Masters) -> None:
    site = Worked(masters, "dlq")
    cluster, learned = site.master.state.cluster, site.master.state.trials.learned
    job = site.submit(gpus=1, run_s=None, family="f")._replace(worked_s=60.0, gpu_type_ran="H100")
    kept: dict[str, Lesson] = {}
    for at in range(FAMILIES_KEPT + 300):
        cluster.recall(_completed(job, at))
        if at % 100 == 99:
            rows, dropped = learned.changed(cluster)
            kept |= {row.name: row for row in rows}
            for name in dropped:
                del kept[name]
    of_families = [row for row in kept.values() if row.kind == "run"]
    assert len(of_families) == FAMILIES_KEPT == len(cluster.profiling.runs)
    for kind, most in (("ratio", RATIOS_KEPT), ("outcome", OUTCOMES_KEPT)):
        assert len([row for row in kept.values() if row.kind == kind]) <= most // IN_A_ROW + 2
    assert len([row for row in kept.values() if row.kind == "error"]) == ERRING_KEPT
    assert max(len(row.numbers) for row in kept.values()) <= IN_A_ROW
    assert set(cluster.profiling.outcomes) == {0.0, 1.0}
    again = Worked(masters, "dlq").master.state
    again.trials.learned.restore(again.cluster, kept.values())
    assert known(again.cluster) == known(cluster)


def _completed(job: Job, at: int) -> Job:
    return job._replace(
        state=JobState.COMPLETED,
        family=f"f{at}",
        duration_estimate_s=50.0 + at % 7,
        total_gpu_s=1.0 + at,
        steps=strict(100.0),
        margin=0.1,
        end_time_s=job.submit_time_s + 99.0 + at % 3,
    )


@pytest.mark.parametrize("step", [1, 7, 31, 32, 33, 100])
def test_the_newest_facts_come_back_from_rows_that_are_written_over(step: int) -> None:
    ring = Ring[float]("k", 100, lambda fact: ((fact,), ()), lambda of, _: of[0])
    newest: Newest[float] = Newest(maxlen=100)
    rows: dict[str, Lesson] = {}
    for begin in range(0, 700, step):
        told = newest.total
        for fact in range(begin, begin + step):
            newest.append(float(fact))
        rows |= {row.name: row for row in ring.rows(newest, told)}
        begin_at, facts = ring.facts(rows.values(), 1)
        again = newest_of(begin_at, facts, 100)
        assert (list(again), again.total) == (list(newest), newest.total)
    assert len(rows) <= 100 // IN_A_ROW + 2
