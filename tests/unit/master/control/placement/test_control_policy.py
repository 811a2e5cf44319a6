"""Another policy takes over a living cluster: what stays, what goes, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq_common.errors import AlreadyExists, IllegalTransition, InvalidRequest
from dlq_master.control.stimuli import PolicySet, SetPolicy
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.policy.registry.presets import PRESETS
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from support.validate import validate

Masters = Callable[..., Master]


def a_choice(policy: str = "", request_id: str = "p1", **more: Any) -> SetPolicy:
    settings = tuple(sorted(more.pop("settings", {}).items()))
    return SetPolicy(caller=ROOT, request_id=request_id, policy=policy, settings=settings, **more)


def choose(master: Master, policy: str = "", request_id: str = "p1", **more: Any) -> PolicySet:
    answer = master.ask(a_choice(policy, request_id, **more))
    assert isinstance(answer, PolicySet)
    return answer


def a_busy_master(masters: Masters, policy: str = "best-effort", **settings: str) -> Master:
    """Eight GPUs: jobs 1 and 2 run on all of them, 3 to 5 wait."""
    master = masters(config_of(policy, **settings))
    agent = SimAgent(master, NodeId("n1"), gpus=8)
    agent.hello()
    for gpus in (4, 4, 8, 1, 2):
        master.submit(gpus)
    agent.obey()
    for key in list(agent.ranks):
        agent.start(key)
    agent.report()
    return master


def promise(master: Master, job_id: JobId) -> Job:
    """A deadline was promised to it, as a plan of Chronus would."""
    job = master.state.cluster.jobs[job_id]
    told = job._replace(
        steps=strict(1e9),
        band=Band.FILL,
        slots=(Segment(2_000_000, 2_000_001),),
        promised=0,
        verdict="holes",
        margin=0.1,
        duration_estimate_s=600.0,
        trials=(),
    )
    master.state.cluster.put_job(told)
    master.tick()
    return told


LIVE = sorted(name for name, preset in PRESETS.items() if not preset.simulated)


@pytest.mark.parametrize("policy", LIVE)
def test_every_preset_of_a_master_may_be_chosen_and_left_again(
    masters: Masters, policy: str
) -> None:
    master = a_busy_master(masters)
    choose(master, policy)
    assert master.loop.published.policy == policy
    running = [job for job in master.loop.published.jobs() if job.live_attempt is not None]
    assert [job.job_id for job in running] == [1, 2]
    master.tick(400.0)
    master.restart()
    assert master.loop.published.policy == policy
    choose(master, "", "p2", from_file=True)
    assert master.loop.published.policy == "best-effort"
    validate(master.state.cluster)


def test_who_waits_is_in_the_new_order(masters: Masters) -> None:
    master = a_busy_master(masters, "fifo")
    agent = SimAgent(master, NodeId("n2"), gpus=2)
    agent.hello()
    assert master.job(JobId(4)).waiting
    choose(master, "sf")
    running = [job.job_id for job in master.loop.published.jobs() if job.live_attempt]
    assert running == [1, 2, 4], "job 3, which came first, does not hold up the smallest any more"


def test_levels_and_head_starts_that_are_not_there_any_more_are_taken_away(
    masters: Masters,
) -> None:
    master = a_busy_master(masters, "tiresias-las", thresholds="10,100", starve_limit_s="50")
    master.tick(60.0)
    assert any(job.promoted for job in master.loop.published.jobs())
    assert any(job.level for job in master.loop.published.jobs())
    choose(master, "fifo")
    jobs = list(master.loop.published.jobs())
    assert not any(job.promoted or job.level for job in jobs)
    order = sorted((job for job in jobs if job.waiting), key=lambda job: job.sequence)
    assert [job.job_id for job in order] == [3, 4, 5]


def test_a_choice_is_kept_over_a_restart_and_one_of_the_file_follows_the_file(
    masters: Masters,
) -> None:
    master = a_busy_master(masters)
    master.config = config_of("fifo")
    master.restart()
    assert master.loop.published.policy == "fifo"
    assert "policy_set" in master.words()
    chosen = choose(master, "sf", settings={"place": "spread"}).chosen
    master.config = config_of("best-effort")
    master.restart()
    assert master.loop.published.chosen == chosen
    assert (chosen.by, chosen.settings) == ("root", {"place": "spread"})
    assert master.state.policy.placement.name == "spread"


def test_the_same_request_again_changes_nothing(masters: Masters) -> None:
    master = a_busy_master(masters)
    first = choose(master, "sf")
    choose(master, "lf", "p2")
    again = choose(master, "sf")  # its reply was lost
    assert again.dropped == first.dropped
    assert master.loop.published.policy == "lf"
    with pytest.raises(AlreadyExists):
        choose(master, "fifo")


@pytest.mark.parametrize(
    ("policy", "settings", "says"),
    [
        ("tiresias", {}, "did you mean 'tiresias-las'"),
        ("fifo", {"thresholds": "3"}, "no setting 'thresholds'"),
        ("fifo", {"place": "count"}, "for simulations only"),
        ("srtf", {"know": "known"}, "only a simulation can tell"),
        ("gpuaas-greedy", {}, "rents nodes by their prices, and a master's nodes have none"),
        ("pollux", {}, "for simulations only: it divides GPUs by goodput"),
    ],
)
def test_what_no_master_can_run_is_refused_with_the_reason(
    masters: Masters, policy: str, settings: dict[str, str], says: str
) -> None:
    master = a_busy_master(masters)
    with pytest.raises(InvalidRequest, match=says):
        choose(master, policy, settings=settings)
    assert master.loop.published.policy == "best-effort"


def test_promises_are_dropped_only_by_force_and_each_owner_is_told(masters: Masters) -> None:
    master = a_busy_master(masters, "chronus")
    promise(master, JobId(3))
    with pytest.raises(IllegalTransition, match=r"1 job has promises.*: 3") as refused:
        choose(master, "fifo")
    assert "--force" in refused.value.hint
    assert master.job(JobId(3)).promised == 0
    assert choose(master, "fifo", "p2", force=True).dropped == (3,)
    job = master.job(JobId(3))
    assert (job.promised, job.band, job.slots, job.verdict) == (None, Band.SPOT, (), "")
    (told,) = [event for event in master.events(JobId(3)) if event.kind == "promise_dropped"]
    assert (told.actor, "fifo" in told.cause) == ("user:root", True)
    assert choose(master, "fifo", "p2", force=True).dropped == (3,)


def test_promises_stay_where_as_much_may_be_promised(masters: Masters) -> None:
    master = a_busy_master(masters, "chronus")
    promise(master, JobId(3))
    assert (
        choose(master, "chronus-paper", settings={"deadlines": "exact", "be_floor": "0.1"}).dropped
        == ()
    )
    assert master.job(JobId(3)).promised == 0
    assert choose(master, "chronus", "p2", settings={"be_floor": "0.5"}).dropped == ()
    with pytest.raises(IllegalTransition):
        choose(master, "chronus", "p3", settings={"deadlines": "whole-leases"})
    whole = {"deadlines": "whole-leases"}
    assert choose(master, "chronus", "p4", settings=whole, force=True).dropped == ()
    assert master.job(JobId(3)).promised == 0


def test_a_file_that_drops_promises_is_announced_at_the_start(masters: Masters) -> None:
    master = a_busy_master(masters, "chronus")
    promise(master, JobId(3))
    master.config = config_of("fifo")
    master.start()
    assert master.job(JobId(3)).promised is None
    assert "promise_dropped" in master.words(JobId(3))
    assert master.store.load().jobs[2].promised is None
