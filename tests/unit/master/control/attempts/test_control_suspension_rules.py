"""Rules about suspended jobs that meet other rules: the order of those that come back, slow saves
of others, deadlines, limits of preemptions, clocks of steps, and stops that would kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import IllegalTransition, WorkWouldBeLost
from dlq_master.control.config import SuspensionConfig
from dlq_master.control.stimuli import AskedDeadline, PauseJob, RequeueJob, UpdateJob
from dlq_master.control.stimuli.jobs import JobEdit
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import EndReason, JobState
from dlq_master.model.nodes.node import FlagNote, NodeFlag
from dlq_nodeagent.model.errands import Move, MoveResult
from support.agent_bench import made
from support.suspending_site import SuspendingSite as Site
from support.suspending_site import suspending_site


@pytest.fixture
def site() -> Iterator[Site]:
    with suspending_site() as opened:
        yield opened


@pytest.fixture
def busy() -> Iterator[Site]:
    """The shortest comes first, and others are suspended for it."""
    with suspending_site("srtf", preempt="suspend", min_run="off") as opened:
        yield opened


def running(site: Site, *asked: tuple[int, float, float], saves_s: float = 1) -> list[JobId]:
    """Jobs of so many GPUs, seconds, and seconds as they say."""
    jobs = [
        site.submit(gpus, run_s=run_s, run_estimate_s=said_s, saves_s=saves_s)
        for gpus, run_s, said_s in asked
    ]
    site.until(lambda: all(map(site.runs, jobs)))
    return jobs


def test_of_two_that_come_back_to_the_same_gpus_the_better_one_comes_first(busy: Site) -> None:
    site = busy
    long = running(site, *[(4, 5000.0, 6000.0)] * 2)
    short = running(site, *[(4, 250.0, 280.0)] * 2)
    assert all(map(site.is_out, long))
    (guest,) = running(site, (4, 60.0, 70.0))
    (out,) = [it for it in short if site.is_out(it)]
    site.until(lambda: site.master.job(guest).ended)
    site.until(lambda: site.runs(out))
    assert all(map(site.is_out, long))
    site.until(lambda: all(map(site.runs, long)))
    for job_id in (*long, out):
        assert site.master.words(job_id).count("attempt_suspended") == 1
        assert site.master.job(job_id).attempts == 1


def test_nobody_comes_back_to_gpus_for_which_a_better_one_waits(site: Site) -> None:
    gang = site.out(8, 2)
    lower, last = running(site, (4, 1000.0, 1000.0), (4, 60.0, 60.0))
    site.pause(lower)
    site.until(lambda: site.is_out(lower))
    for job_id in (gang, lower):
        site.resume(job_id)
    site.settle(20)
    assert site.runs(last)
    assert site.is_out(lower)
    site.until(lambda: site.runs(gang))
    assert site.is_out(lower)


@pytest.mark.parametrize("saves", [True, False])
def test_it_stays_off_its_gpus_while_another_one_leaves_for_the_same_job(
    busy: Site, saves: bool
) -> None:
    """The other one saves, or moves, for longer than `wait`."""
    site = busy
    config = SuspensionConfig(wait=Seconds(20.0))
    site.master.state.config = replace(site.master.state.config, suspend=config)
    running(site, (4, 3000.0, 50.0))
    (first,) = running(site, (2, 9000.0, 10000.0))
    (slow,) = running(site, (2, 9000.0, 9900.0), saves_s=100)
    leaves = AttemptState.PAUSING if saves else AttemptState.SUSPENDED

    def slowly(move: Move) -> MoveResult | None:
        if move.launch.key.job_id != str(int(slow)):
            return made(move)
        return MoveResult(refusal="lock: busy") if saves else None

    with site.moving(slowly):
        guest = site.submit(4, run_s=60, run_estimate_s=100.0)
        site.until(lambda: site.state(slow) is leaves and site.is_out(first))
        site.settle(60)
        assert site.state(slow) is leaves
        assert site.is_out(first)
    site.until(lambda: site.master.job(guest).state is JobState.COMPLETED)
    site.until(lambda: site.runs(first))
    assert site.master.words(first).count("attempt_suspended") == 1


def test_a_suspended_job_gets_no_deadline_promised_until_it_runs_again() -> None:
    site = Site("dlq")
    job_id, other = running(site, *[(4, 1500.0, 2000.0)] * 2)
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    deadlines = (AskedDeadline(100.0, after_s=9000.0),)
    for asked in (job_id, other):
        site.master.edit(UpdateJob, asked, deadlines=deadlines)
    site.settle(60)
    assert site.is_out(job_id)
    assert site.master.job(job_id).promised is None
    assert site.master.job(other).promised is not None
    assert job_id in site.master.state.cluster.unjudged
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    site.until(lambda: site.master.job(job_id).promised is not None)
    assert "promise_made" in site.master.words(job_id)
    site.master.close()


def test_a_pause_in_memory_of_one_that_is_wanted_back_is_refused(site: Site) -> None:
    job_id = site.out(8, 2)
    site.pause(job_id)  # it is so already
    guest = site.submit(8, 2, run_s=60)
    site.until(lambda: site.runs(guest))
    site.resume(job_id)
    with pytest.raises(IllegalTransition, match="comes back by itself") as refusal:
        site.pause(job_id)
    assert refusal.value.hint.endswith(f"or let it go: dlq pause {job_id}")
    site.until(lambda: site.runs(job_id))


def test_a_pause_in_memory_of_one_that_left_for_another_job_is_refused(busy: Site) -> None:
    site = busy
    jobs = running(site, *[(4, 1000.0, 1000.0)] * 2)
    (guest,) = running(site, (4, 20.0, 30.0))
    (job_id,) = [it for it in jobs if site.is_out(it)]
    with pytest.raises(IllegalTransition, match="comes back by itself") as refusal:
        site.pause(job_id)
    assert "once it runs again" in refusal.value.hint
    assert site.master.job(job_id).hold is None
    site.until(lambda: site.runs(job_id))
    assert site.master.job(guest).state is JobState.COMPLETED


def test_suspensions_count_as_preemptions() -> None:
    site = Site("srtf", preempt="suspend", min_run="off", max_preemptions="1")
    job_id, other = running(site, *[(4, 20000.0, 20000.0)] * 2)
    for _ in range(2):
        (guest,) = running(site, (4, 20.0, 30.0))
        site.until(partial(lambda it: site.master.job(it).ended, guest))
        site.until(lambda: site.runs(job_id) and site.runs(other))
    guest = site.submit(4, run_s=20, run_estimate_s=30.0)
    site.settle(60)
    assert site.master.job(guest).state is JobState.QUEUED
    for it in (job_id, other):
        assert site.master.attempt(it).suspensions == 1
        assert site.master.job(it).displaced == 0
    site.master.close()


def test_time_off_its_gpus_is_neither_a_stall_nor_a_slow_step(site: Site) -> None:
    job_id = site.submit(run_s=20000)
    site.until(lambda: site.runs(job_id))
    state = site.master.state
    step = 0

    def steps(count: int) -> None:
        """One each 20 s, as beats tell them."""
        nonlocal step
        for _ in range(count):
            site.settle(20)
            step += 1
            state.jobs.beats[job_id] = Beat(step, 100000, None, site.master.clock.now_s())

    steps(10)
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    site.settle(3600)
    site.resume(job_id)
    site.until(lambda: site.runs(job_id))
    steps(10)
    site.settle(10)
    pace, track = state.attempts.stalls.paces[job_id], state.trials.tracks[job_id]
    assert pace.step_s is not None
    assert pace.step_s < 30
    assert pace.spell_s < 60
    assert "job_stalled" not in site.master.words(job_id)
    for soon, late in pairwise(track.samples):
        assert (late.time_s - soon.time_s) / (late.step - soon.step) < 40, track.samples
    assert track.samples[0].time_s - track.first_s < 60


@pytest.mark.parametrize("stop", [PauseJob, RequeueJob])
def test_a_stop_of_a_suspended_job_says_that_it_would_lose_work(
    site: Site, stop: type[JobEdit]
) -> None:
    job_id = site.submit(run_s=20000)
    site.until(lambda: site.runs(job_id))
    cluster = site.master.state.cluster
    cluster.put_job(cluster.jobs[job_id]._replace(saves=(1.0,)))
    site.settle(300)
    site.pause(job_id)
    site.until(lambda: site.is_out(job_id))
    with pytest.raises(WorkWouldBeLost, match=r"cannot save without its GPUs .* on 4 GPUs"):
        site.master.edit(stop, job_id, accept_loss=False)
    assert site.is_out(job_id)
    site.master.edit(stop, job_id, accept_loss=True)
    site.until(lambda: site.living(job_id) is None or site.master.job(job_id).attempts == 2)


def test_a_refusal_on_a_drained_node_brings_back_ranks_that_have_left_to_save(site: Site) -> None:
    job_id = site.submit(8, 2)
    site.until(lambda: site.runs(job_id))
    cluster = site.master.state.cluster
    node_id = site.master.attempt(job_id).ranks[1].node_id

    def refuses_late(move: Move) -> MoveResult | None:
        if move.launch.key.node_rank == 0 or not move.out:
            return made(move)
        first = site.master.attempt(job_id).ranks[0]
        if first.move is None or first.move.state != "suspended":
            return None
        note = FlagNote(NodeFlag.DRAINING, "fan", "root", site.master.clock.now_s())
        node = cluster.nodes[node_id]
        cluster.put_node(node._replace(flags=frozenset({note.flag}), notes=(note,)))
        return MoveResult(refusal="lock: busy")

    with site.moving(refuses_late):
        site.pause(job_id)
        site.until(lambda: site.living(job_id) is None)
    assert site.master.ended(job_id, 1).end_reason is EndReason.PREEMPTED, "it has saved"
    assert "attempt_suspend_refused" not in site.master.words(job_id)
