"""A job leaves its GPUs without a save, and comes back: the agents' real cores under a real master,
without processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import IllegalTransition
from dlq_common.text.wire import from_timestamp
from dlq_master.control.config import SuspensionConfig
from dlq_master.control.stimuli import FenceNode, SetNodeFlags
from dlq_master.model.attempts.attempt import AttemptState, Suspension, SuspensionPhase
from dlq_master.model.attempts.grace import limit_left_s
from dlq_master.model.attempts.suspending import Next, SuspendRules, is_short, next_step
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import EndReason, HoldKind, JobState, RunRules
from dlq_master.model.nodes.node import FlagNote, NodeFlag
from dlq_master.model.resources import mask_of
from dlq_master.model.transitions import StopCause
from dlq_master.model.why import ReasonCode
from dlq_master.rpc.views.convert import suspension_message
from dlq_nodeagent.model.errands import Move, MoveResult
from support.agent_bench import made
from support.builders import a_job, a_node, an_allocation, an_attempt
from support.master_harness import ROOT
from support.suspending_site import SuspendingSite as Site
from support.suspending_site import suspending_site


@pytest.fixture
def site() -> Iterator[Site]:
    with suspending_site() as opened:
        yield opened


@pytest.fixture
def busy() -> Iterator[Site]:
    """The fewest GPUs come first, and others are suspended for short ones."""
    with suspending_site("sf", preempt="suspend", min_run="off") as opened:
        yield opened


@pytest.mark.parametrize(("gpus", "nodes"), [(2, 1), (8, 2)])
def test_a_job_leaves_its_gpus_and_comes_back_as_the_same_attempt(
    site: Site, gpus: int, nodes: int
) -> None:
    job_id = site.submit(gpus, nodes, run_s=100)
    site.until(lambda: site.runs(job_id))
    place = site.master.attempt(job_id).lease
    free = site.free()
    site.pause(job_id)
    assert site.state(job_id) is AttemptState.SUSPENDED
    assert site.free() == free, "its GPUs are its own until all ranks have left"
    site.until(lambda: site.is_out(job_id))
    assert site.free() == free + gpus
    site.settle(100)
    assert site.is_out(job_id), "a person's pause has no end"
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    now = site.master.attempt(job_id).lease
    assert (now.fence, now.allocation) == (place.fence, place.allocation)
    assert site.free() == free
    site.until(lambda: site.master.job(job_id).state is JobState.COMPLETED)
    job = site.master.job(job_id)
    assert job.attempts == 1
    assert job.total_executed_s < 130, "what it stood still is not charged"


def test_others_run_on_its_gpus_meanwhile_and_it_waits_for_them(site: Site) -> None:
    job_id = site.out(8, 2)
    guest = site.submit(8, 2, run_s=60)
    site.until(lambda: site.runs(guest))
    site.resume(job_id)
    later = site.submit(8, 2, run_s=60)
    site.settle(20)
    assert site.is_out(job_id)
    site.until(lambda: site.runs(job_id))
    assert site.master.job(guest).state is JobState.COMPLETED
    assert site.master.job(later).state is JobState.QUEUED, "it came before those that wait"


def test_a_refusal_leaves_the_job_running_and_brings_the_whole_gang_back(site: Site) -> None:
    job_id = site.submit(8, 2)
    site.until(lambda: site.runs(job_id))
    node = site.agents[0]

    def one_refuses(move: Move) -> MoveResult:
        first = move.launch.key.node_rank == 0 and move.out
        return MoveResult(refusal="memory: no room") if first else made(move)

    with site.moving(one_refuses):
        site.pause(job_id)
        site.until(lambda: site.runs(job_id))
    site.settle(10)
    assert not any(
        attempt.frozen for agent in site.agents for attempt in agent.host.attempts.values()
    )
    assert site.runs(job_id)
    assert "attempt_suspend_refused" in site.master.words(job_id)
    assert node.runs is not None


def _leaves_and_cannot_come_back(move: Move) -> MoveResult | None:
    """Rank 1 refuses; rank 0 has left by then."""
    if move.launch.key.node_rank == 1:
        return MoveResult(refusal="memory: no room") if move.out else made(move)
    return made(move) if move.out else MoveResult(broken="restore: CUDA error 999")


def test_a_rank_that_cannot_come_back_after_a_refusal_throws_the_job_back(site: Site) -> None:
    job_id = site.submit(8, 2)
    site.until(lambda: site.runs(job_id))
    with site.moving(_leaves_and_cannot_come_back):
        site.pause(job_id)
        site.until(lambda: site.master.job(job_id).attempts == 2)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED_LOST
    told = [it.cause for it in site.master.events(job_id) if it.kind == "attempt_stop_requested"]
    assert told == ["n1: restore: CUDA error 999"]
    site.until(lambda: site.runs(job_id))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rank_that_is_never_back_after_a_refusal_throws_the_job_back(
    site: Site, restarts: bool
) -> None:
    job_id = site.submit(8, 2)
    site.until(lambda: site.runs(job_id))

    def hangs(move: Move) -> MoveResult | None:
        first = move.launch.key.node_rank == 0 and not move.out
        return None if first else _leaves_and_cannot_come_back(move)

    with site.moving(hangs):
        site.pause(job_id)
        site.until(lambda: site.runs(job_id))
        if restarts:
            site.settle(60)
            site.restart_master()
        site.settle(100)
        assert site.runs(job_id), "time without a master does not count"
        site.until(lambda: site.master.job(job_id).attempts == 2)
    causes = [it.cause for it in site.master.events(job_id)]
    assert any("a rank is not back after" in cause for cause in causes), causes[-12:]


def test_a_refusal_after_which_all_are_back_leaves_nothing_open(site: Site) -> None:
    job_id = site.submit(8, 2)
    site.until(lambda: site.runs(job_id))
    with site.moving(
        lambda move: MoveResult(refusal="memory: no room") if move.out else made(move)
    ):
        site.pause(job_id)
        site.until(lambda: site.runs(job_id))
    site.restart_master()
    site.settle(200)
    assert site.runs(job_id)
    assert site.master.state.attempts.suspended == set()
    assert site.master.job(job_id).attempts == 1


@pytest.fixture
def wide() -> Iterator[Site]:
    """Two nodes of eight GPUs."""
    with suspending_site(gpus=8) as opened:
        yield opened


@pytest.mark.parametrize(("gpus", "nodes"), [(2, 1), (8, 2)])
def test_a_job_whose_gpus_are_taken_comes_back_to_others_of_its_nodes(
    wide: Site, gpus: int, nodes: int
) -> None:
    site = wide
    job_id = site.out(gpus, nodes)
    place = site.living(job_id).place  # type: ignore[union-attr]  # it lives
    guest = site.submit(gpus, nodes)
    site.until(lambda: site.runs(guest))
    assert site.master.attempt(guest).lease.allocation == place
    free = site.free()
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    now = site.master.attempt(job_id).lease.allocation
    assert now.node_ids == place.node_ids
    assert (now.width, now.overlaps(place)) == (gpus, False)
    assert site.free() == free - gpus
    told = {
        f"{agent.node_id}: {'+'.join(map(str, sorted(agent.gpus_of(job_id))))}"
        for agent in site.agents
        if agent.gpus_of(job_id)
    }
    events = site.master.events(job_id)
    (cause,) = [it.cause for it in events if it.kind == "attempt_resume_asked"]
    assert set(cause.removeprefix("to others: ").split(", ")) == told
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    assert site.master.attempt(job_id).lease.allocation == now, "these are its own now"
    site.master.cancel(job_id)
    site.until(lambda: site.living(job_id) is None)
    assert site.free() == free
    assert site.runs(guest)


def test_nobody_comes_back_to_gpus_to_which_another_one_comes_back(site: Site) -> None:
    filler = site.submit(4)
    site.until(lambda: site.runs(filler))
    first, second = site.submit(2), site.submit(2)
    site.until(lambda: site.runs(first) and site.runs(second))
    places = [site.master.attempt(it).lease.allocation for it in (first, second)]
    for job_id in (first, second):
        site.pause(job_id)
        site.until(lambda job_id=job_id: site.is_out(job_id))  # type: ignore[misc]
    guests = [site.submit(2, run_s=run_s) for run_s in (200, 30)]
    site.until(lambda: all(map(site.runs, guests)))
    assert [site.master.attempt(it).lease.allocation for it in guests] == places
    for job_id in (first, second):
        site.resume(job_id)
    site.until(lambda: site.runs(second))
    assert site.is_out(first)
    assert site.master.attempt(second).lease.allocation == places[1]
    site.until(lambda: site.runs(first))
    assert site.master.attempt(first).lease.allocation == places[0]


@pytest.mark.parametrize("why", ["driver", "few", "ailing"])
def test_a_job_waits_for_its_own_gpus_where_no_others_will_do(wide: Site, why: str) -> None:
    site = wide
    for agent in site.agents if why == "driver" else ():
        agent.own_only = "the driver is older than 580"
    job_id = site.out(5 if why == "few" else 2)
    place = site.living(job_id).place  # type: ignore[union-attr]  # it lives
    node_id, mask = place.slots[0]
    guest = site.submit(8 if why == "few" else 2, run_s=100)
    site.until(lambda: site.runs(guest))
    cluster = site.master.state.cluster
    if why == "ailing":
        others = mask_of(range(8)) & ~mask
        cluster.put_node(cluster.nodes[node_id]._replace(withheld=others))
    site.resume(job_id)
    site.settle(20)
    assert site.is_out(job_id)
    (reason,) = site.master.why(job_id).reasons
    only = ", to its own GPUs only (the driver is older than 580)"
    assert reason.detail.endswith(only) is (why == "driver")
    site.until(lambda: site.runs(job_id))
    assert site.master.attempt(job_id).lease.allocation == place


def test_who_cannot_come_back_goes_on_from_its_last_checkpoint(site: Site) -> None:
    job_id = site.out()
    with site.moving(lambda move: MoveResult(broken="restore: CUDA error 999")):
        site.resume(job_id)
        site.until(lambda: site.master.job(job_id).attempts == 2)
    site.until(lambda: site.runs(job_id))
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED_LOST


def drain(site: Site, job_id: JobId) -> str:
    """Empties the node of a suspended job."""
    attempt = site.living(job_id)
    assert attempt is not None
    node_id = attempt.place.node_ids[0]
    asked = SetNodeFlags(
        caller=ROOT, request_id="drain", node_id=node_id, set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(), reason="repair",
    )  # fmt: skip
    site.master.ask(asked)
    return node_id


def test_a_drain_lets_a_paused_job_save_and_it_stays_paused(site: Site) -> None:
    job_id = site.out()
    node_id = drain(site, job_id)
    site.until(lambda: site.living(job_id) is None)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED, "it has saved"
    site.settle(30)
    job = site.master.job(job_id)
    assert (job.state, job.hold, job.attempts) == (JobState.HELD, HoldKind.PAUSED, 1)
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    assert site.living(job_id).place.node_ids[0] != node_id  # type: ignore[union-attr]  # it lives


def test_a_drain_lets_a_job_save_that_left_for_another_one(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(1, run_s=900, time_limit_s=250.0)
    site.until(lambda: site.runs(guest))
    (job_id,) = [it for it in first if site.is_out(it)]
    drain(site, job_id)
    assert site.is_out(job_id), "its GPUs are not free yet"
    site.until(lambda: site.living(job_id) is None or site.master.job(job_id).attempts == 2)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED
    assert site.master.ended(guest, 1).end_reason is EndReason.PREEMPTED


def test_a_drain_in_the_middle_of_a_move_brings_it_back_to_save(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None if move.out else made(move)):
        site.pause(job_id)
        site.settle(2)
        drain(site, job_id)
        site.settle(5)
    site.until(lambda: site.living(job_id) is None)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED
    assert site.master.job(job_id).hold is HoldKind.PAUSED


def test_who_waits_in_vain_for_its_gpus_on_a_drained_node_is_thrown_back() -> None:
    drained = a_node("n1", notes=(FlagNote(NodeFlag.DRAINING, "fan", "root", 100.0),))
    drained = drained._replace(flags=frozenset({NodeFlag.DRAINING}))
    suspension = Suspension(SuspensionPhase.OUT, 0.0, an_allocation(("n1", 1)), JobId(2), out_s=5.0)
    attempt = an_attempt(state=AttemptState.SUSPENDED, suspension=suspension)

    def after(now_s: float, *, free: bool = False) -> Next:
        return next_step(
            attempt, [drained], guest_waits=False, gpus_free=free, now_s=now_s,
            rules=SuspendRules(), grace_s=60.0,
        )[0]  # fmt: skip

    assert after(130.0, free=True) is Next.SAVE
    assert after(130.0) is Next.NOTHING
    assert after(160.0) is Next.THROW_BACK


@pytest.mark.parametrize("wanted", [False, True])
def test_who_was_paused_on_a_lost_host_stays_paused(site: Site, wanted: bool) -> None:
    job_id = site.out()
    node_id = site.living(job_id).place.node_ids[0]  # type: ignore[union-attr]  # it lives
    site.agents = [agent for agent in site.agents if agent.node_id != node_id]
    site.settle(60)
    assert site.state(job_id) is AttemptState.UNKNOWN
    if wanted:
        site.resume(job_id)
    site.master.ask(FenceNode(caller=ROOT, request_id="off", node_id=node_id, reason="off"))
    site.settle(30)
    assert site.master.ended(job_id, 1).end_reason is EndReason.NODE_LOST
    job = site.master.job(job_id)
    if wanted:
        assert site.runs(job_id)
    else:
        assert (job.state, job.hold, job.attempts) == (JobState.HELD, HoldKind.PAUSED, 1)


def test_a_suspension_by_a_person_may_have_an_end(site: Site) -> None:
    state = site.master.state
    config = SuspensionConfig(by_person=Seconds(100.0))
    state.config = replace(state.config, suspend=config)
    job_id = site.out()
    attempt = site.living(job_id)
    assert attempt is not None
    assert attempt.suspension is not None
    assert attempt.suspension.ends_s == (attempt.suspension.out_s or 0.0) + 100.0
    shown = suspension_message(attempt.suspension)
    assert from_timestamp(shown.end_time) == attempt.suspension.ends_s
    site.settle(80)
    assert site.is_out(job_id)
    site.settle(60)
    job = site.master.job(job_id)
    assert (job.state, job.hold, job.attempts) == (JobState.HELD, HoldKind.PAUSED, 1)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED, "it has saved"


@pytest.mark.parametrize("each", [True, False])
def test_a_time_limit_stands_still_with_a_suspended_job(site: Site, each: bool) -> None:
    """As with Slurm's `scontrol suspend`, whose time limit is that of each attempt."""
    job_id = site.submit(time_limit_s=60.0, rules=RunRules(limit_each=each))
    site.until(lambda: site.runs(job_id))
    site.settle(20)
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    site.settle(200)
    assert site.is_out(job_id)
    job, now_s = site.master.job(job_id), site.master.clock.now_s()
    left_s = limit_left_s(job, site.living(job_id), now_s)
    assert left_s is not None
    assert 30 < left_s < 42
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    site.settle(24)
    assert site.runs(job_id)
    site.settle(30)
    assert site.master.ended(job_id, 1).stop_cause is StopCause.TIME_LIMIT


def test_a_job_with_a_promised_deadline_is_not_suspended_by_a_person(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    cluster = site.master.state.cluster
    cluster.put_job(cluster.jobs[job_id]._replace(promised=0))
    with pytest.raises(IllegalTransition, match="a deadline of it is promised"):
        site.pause(job_id)


def test_a_promised_guest_waits_no_longer_than_for_a_save(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    attempt = site.living(job_id)
    assert attempt is not None
    cluster, now_s = site.master.state.cluster, site.master.clock.now_s()
    until_s = now_s + 50.0
    drive.suspend_attempt(cluster, attempt.key, now_s, for_job=job_id, why="", until_s=until_s)
    site.master.state.attempts.suspended.add(attempt.key)
    site.settle(40)
    assert site.state(job_id) is AttemptState.SUSPENDED
    site.settle(20)
    assert site.master.ended(job_id, 1).stop_cause is StopCause.PREEMPT


@pytest.mark.parametrize("saves", [True, False])
def test_a_move_that_takes_too_long_ends_in_a_save(busy: Site, saves: bool) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    cluster = site.master.state.cluster
    if not saves:
        for job_id in first:
            job = cluster.jobs[job_id]
            cluster.put_job(job._replace(rules=job.rules._replace(saves=False)))
    with site.moving(lambda move: None):
        guest = site.submit(1, run_s=20, time_limit_s=120.0)
        site.until(lambda: any(site.state(it) is AttemptState.SUSPENDED for it in first))
        (job_id,) = [it for it in first if site.state(it) is AttemptState.SUSPENDED]
        site.settle(300)
        late = site.master.attempt(job_id)
        assert (late.state is AttemptState.SUSPENDED) is saves, "it is waited for"
    if saves:
        assert late.stop_cause is None
        site.until(lambda: site.runs(guest))
        assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED
    else:
        assert "attempt_suspend_refused" in site.master.words(job_id)


def test_a_master_that_restarts_finds_it_where_it_was(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None):
        site.pause(job_id)
        site.settle(2)
        site.restart_master()
        site.settle(20)
        assert site.state(job_id) in (AttemptState.SUSPENDED, AttemptState.UNKNOWN)
    site.until(lambda: site.is_out(job_id))
    site.restart_master()
    site.settle(20)
    assert site.is_out(job_id)
    site.resume(job_id)
    site.restart_master()
    site.until(lambda: site.runs(job_id))
    assert site.master.job(job_id).attempts == 1


def test_a_silent_node_keeps_it_suspended(site: Site) -> None:
    job_id = site.out()
    away = site.agents[:]
    site.agents.clear()
    site.settle(60)
    assert site.state(job_id) is AttemptState.UNKNOWN
    site.resume(job_id)
    assert site.state(job_id) is AttemptState.UNKNOWN
    site.agents.extend(away)
    site.until(lambda: site.runs(job_id))
    assert site.master.job(job_id).attempts == 1


def test_agents_that_never_answer_are_not_waited_for(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None):
        site.pause(job_id)
        site.until(lambda: site.runs(job_id))
        phases = [it.kind for it in site.master.events(job_id)]
        assert "attempt_suspend_refused" in phases


@pytest.mark.parametrize("phase", list(SuspensionPhase))
def test_a_cancelled_one_ends_wherever_it_stands(site: Site, phase: SuspensionPhase) -> None:
    job_id = site.out() if phase is not SuspensionPhase.LEAVING else site.submit()
    site.until(lambda: site.living(job_id) is not None)
    site.settle(2)
    with site.moving(lambda move: None):
        if phase is SuspensionPhase.LEAVING:
            site.pause(job_id)
        elif phase is SuspensionPhase.COMING:
            site.resume(job_id)
        site.settle(2)
        site.master.cancel(job_id)
        site.until(lambda: site.living(job_id) is None)
    assert site.master.job(job_id).state is JobState.CANCELLED
    assert site.free() == 8


def test_work_that_was_done_before_is_lost_with_a_suspended_attempt(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    site.settle(50)
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    done_s = site.master.job(job_id).worked_s
    assert done_s >= 50
    with site.moving(lambda move: MoveResult(broken="no way back")):
        site.resume(job_id)
        site.until(lambda: site.master.job(job_id).attempts == 2)
    assert site.master.job(job_id).worked_s < 20, "it has to be done again"


@pytest.mark.parametrize("guest_s", [120.0, 1200.0])
def test_a_plan_suspends_for_a_short_job_and_lets_save_for_a_long_one(
    busy: Site, guest_s: float
) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(1, run_s=20, time_limit_s=guest_s)
    site.until(lambda: site.runs(guest))
    suspended = [job_id for job_id in first if site.is_out(job_id)]
    if guest_s > 300.0:
        assert suspended == []
        assert "attempt_stop_requested" in site.master.words()
        return
    (job_id,) = suspended
    out = site.master.attempt(job_id).suspension
    assert out is not None
    assert out.for_job == guest
    (reason,) = site.master.why(job_id).reasons
    assert (reason.code, reason.blocking_jobs) == (ReasonCode.SUSPENDED, (guest,))
    site.until(lambda: site.runs(job_id))
    assert site.master.job(guest).state is JobState.COMPLETED
    assert site.master.job(job_id).attempts == 1


def test_a_refusal_of_a_plan_s_suspension_lets_the_job_save_and_leave(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    with site.moving(lambda move: MoveResult(refusal="move: CUDA error 801")):
        guest = site.submit(1, run_s=20, time_limit_s=120.0)
        site.until(lambda: site.runs(guest))
    words = site.master.words()
    assert words.count("attempt_suspend_refused") == 1
    assert words.count("attempt_stop_requested") == 1


def test_who_is_off_its_gpus_for_a_job_for_too_long_is_thrown_back(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(2, run_s=4000, time_limit_s=250.0, name="liar")
    site.until(lambda: site.runs(guest))
    (job_id,) = [it for it in first if site.is_out(it)]
    site.master.state.config = replace(
        site.master.state.config, suspend=SuspensionConfig(longest=Seconds(30.0))
    )
    site.until(lambda: site.master.job(job_id).live_attempt is None)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED_LOST


def test_a_node_that_suspends_none_says_so(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    node_id = site.master.attempt(job_id).place.node_ids[0]
    cluster = site.master.state.cluster
    cluster.put_node(cluster.nodes[node_id]._replace(suspend_bytes=0))
    with pytest.raises(IllegalTransition, match="suspends no jobs"):
        site.pause(job_id)
    assert site.runs(job_id)


@pytest.mark.parametrize("restarts", [True, False])
def test_time_without_a_master_or_in_silence_does_not_count_for_longest(
    busy: Site, restarts: bool
) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    guest = site.submit(2, run_s=4000, time_limit_s=250.0, name="liar")
    site.until(lambda: site.runs(guest))
    (job_id,) = [it for it in first if site.is_out(it)]
    if restarts:
        site.master.clock.advance(100)
        site.restart_master()
    else:
        away = site.agents[:]
        site.agents.clear()
        site.settle(100)
        site.agents.extend(away)
    site.master.state.config = replace(
        site.master.state.config, suspend=SuspensionConfig(longest=Seconds(60.0))
    )
    site.settle(30)
    assert site.state(job_id) is AttemptState.SUSPENDED
    site.until(lambda: site.master.job(job_id).live_attempt is None)


def test_time_without_a_master_does_not_count_for_a_move(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    with site.moving(lambda move: None):
        site.pause(job_id)
        site.settle(2)
        site.master.clock.advance(150)
        site.restart_master()
        site.settle(30)
        assert site.state(job_id) is AttemptState.SUSPENDED
        assert "attempt_suspend_refused" not in site.master.words(job_id)
        site.until(lambda: site.runs(job_id))


def test_who_was_paused_and_is_thrown_back_stays_paused(site: Site) -> None:
    job_id = site.out()
    for agent in site.agents:
        agent.core.supervisor.moves.short = lambda: True
    site.until(lambda: site.living(job_id) is None)
    site.settle(20)
    job = site.master.job(job_id)
    assert (job.state, job.hold) == (JobState.HELD, HoldKind.PAUSED)
    for agent in site.agents:
        agent.core.supervisor.moves.short = lambda: False
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))


def test_a_promised_job_is_not_suspended_for_a_plan(busy: Site) -> None:
    site = busy
    first = [site.submit(4), site.submit(4)]
    site.until(lambda: all(map(site.runs, first)))
    cluster = site.master.state.cluster
    for job_id in first:
        cluster.put_job(cluster.jobs[job_id]._replace(promised=0))
    guest = site.submit(1, run_s=20, time_limit_s=120.0)
    site.until(lambda: site.runs(guest))
    assert not any(map(site.is_out, first))


def test_a_member_of_a_group_is_not_suspended_alone(site: Site) -> None:
    job_id = site.submit()
    site.until(lambda: site.runs(job_id))
    attempt = site.living(job_id)
    assert attempt is not None
    site.master.state.cluster.put_attempt(attempt._replace(together=True))
    with pytest.raises(IllegalTransition, match="together with others"):
        site.pause(job_id)


@pytest.mark.parametrize(
    ("guest", "short"),
    [
        ({"rules": RunRules(attended=True)}, False),
        ({"rules": RunRules(attended=True), "time_limit_s": 120.0}, True),
        ({"rules": RunRules(attended=True), "duration_estimate_s": 120.0}, False),
        ({"rules": RunRules(attended=True), "time_limit_s": 28800.0}, False),
        ({"duration_estimate_s": 120.0}, True),
        ({}, False),
    ],
)
def test_an_interactive_job_is_short_by_its_limit_or_where_nobody_can_save(
    guest: dict[str, Any], short: bool
) -> None:
    job = a_job(**guest)
    assert is_short(job, SuspendRules(), can_save=True) is short
    assert is_short(job, SuspendRules(), can_save=False) is (short or job.rules.attended)
    assert not is_short(job, SuspendRules(longest_s=60.0), can_save=True)
