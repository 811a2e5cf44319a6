"""Jobs that are suspended for short ones in a replay: the rules of the master in virtual time."""

from __future__ import annotations

import pytest

from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster

LONG = TraceJob(job_id="long", submit_time_s=0, num_gpus=8, duration_s=4000)
SHORT = TraceJob(job_id="short", submit_time_s=1000, num_gpus=2, duration_s=120)
WORLD = ("save_s=100", "resume_s=100", "term_s=900", "gpu_gb=40")


def replay(*words: str, jobs: tuple[TraceJob, ...] = (LONG, SHORT), policy: str = "srtf") -> Replay:
    (settings,) = read_settings([policy], [*WORLD, *words])
    found = Replay(Trace.of("test", list(jobs)), read_cluster("1x8"), settings)
    found.run()
    return found


def finish_s(found: Replay, name: str) -> float:
    return next(it.finish_s for it in found.outcomes.values() if it.job.job_id == name)


def test_a_short_job_waits_for_a_move_and_not_for_a_save() -> None:
    """320 GB at 10 GB a second are 32 s each way."""
    found = replay("preempt=suspend")
    assert found.suspending.count == 1
    assert finish_s(found, "short") == 1000 + 32 + 120
    assert finish_s(found, "long") == 4000 + 32 + 120 + 32


def test_at_once_saves_instead() -> None:
    found = replay("preempt=at-once")
    assert found.suspending.count == 0
    assert finish_s(found, "long") == 4000 + 100 + 120 + 100


def test_no_job_is_suspended_for_a_long_one() -> None:
    middle = TraceJob(job_id="middle", submit_time_s=1000, num_gpus=2, duration_s=600)
    found = replay("preempt=suspend", jobs=(LONG, middle))
    assert found.suspending.count == 0
    longer = replay("preempt=suspend", "suspend_guests_s=600", jobs=(LONG, middle))
    assert longer.suspending.count == 1


def test_cheaper_compares_with_a_save_and_a_resume() -> None:
    cheap = replay("preempt=at-once", "suspend=cheaper")
    assert cheap.suspending.count == 1
    quick = ("save_s=10", "resume_s=10", "term_s=900", "gpu_gb=40")
    (settings,) = read_settings(["srtf"], [*quick, "preempt=at-once", "suspend=cheaper"])
    dear = Replay(Trace.of("test", [LONG, SHORT]), read_cluster("1x8"), settings)
    dear.run()
    assert dear.suspending.count == 0


def test_a_host_without_room_suspends_none() -> None:
    assert replay("preempt=suspend", "host_gb=300").suspending.count == 0


@pytest.mark.parametrize(("saved_s", "lost_s"), [(1800, 1000), (300, 100)])
def test_who_is_out_for_too_long_goes_on_from_its_last_save(saved_s: int, lost_s: int) -> None:
    middle = TraceJob(job_id="middle", submit_time_s=1000, num_gpus=2, duration_s=500)
    words = ("preempt=suspend", "suspend_guests_s=600", f"saved_s={saved_s}")
    found = replay(*words, "longest_s=100", jobs=(LONG, middle))
    assert found.suspending.thrown == 1
    assert finish_s(found, "long") == 1032 + 500 + 100 + 3000 + lost_s
    assert replay(*words, jobs=(LONG, middle)).suspending.thrown == 0


def test_a_host_without_memory_throws_the_last_one_back() -> None:
    """320 GB were moved, and 10 GPUs take 20 GB each: 8 of the job that is out, 2 of its guest."""
    assert replay("preempt=suspend", "job_gb=20", "host_gb=519").suspending.thrown == 1
    assert replay("preempt=suspend", "job_gb=20", "host_gb=520").suspending.thrown == 0


def test_the_default_policy_suspends_at_boundaries() -> None:
    """The guest waits for a move and not for a save, at the end of the first term."""
    short = SHORT.__class__(job_id="short", submit_time_s=100, num_gpus=2, duration_s=120)
    found = replay("suspend=cheaper", "min_run=off", policy="dlq", jobs=(LONG, short))
    assert found.suspending.count == 1


def test_a_gang_over_two_nodes_saves() -> None:
    wide = TraceJob(job_id="long", submit_time_s=0, num_gpus=16, duration_s=4000)
    (settings,) = read_settings(["srtf"], [*WORLD, "preempt=suspend"])
    found = Replay(Trace.of("test", [wide, SHORT]), read_cluster("2x8"), settings)
    found.run()
    assert found.suspending.count == 0


def test_of_two_on_the_same_gpus_the_one_that_ranks_above_comes_back_first() -> None:
    """The middle one took the GPUs of the long one at 1032. From 1232 it left them to the short
    one, which ended at 1324.
    """
    middle = TraceJob(job_id="middle", submit_time_s=1000, num_gpus=8, duration_s=600)
    short = TraceJob(job_id="short", submit_time_s=1100, num_gpus=8, duration_s=60)
    words = ("preempt=suspend", "suspend_guests_s=600", "host_gb=640")
    found = replay(*words, jobs=(LONG, middle, short))
    assert found.suspending.count == 2
    assert finish_s(found, "short") == 1232 + 32 + 60
    assert finish_s(found, "middle") == 1324 + 32 + 600 - 200


def test_who_left_first_waits_for_others_that_still_leave_for_the_same_job() -> None:
    """One leaves within 4 s. The host has no room for the other one, which saves for 100 s."""
    small = TraceJob(job_id="small", submit_time_s=0, num_gpus=1, duration_s=4000)
    large = TraceJob(job_id="large", submit_time_s=0, num_gpus=7, duration_s=4000)
    guest = TraceJob(job_id="guest", submit_time_s=1000, num_gpus=8, duration_s=100)
    words = ("preempt=suspend", "host_gb=200")
    found = replay(*words, jobs=(small, large, guest))
    assert found.suspending.count == 1
    assert finish_s(found, "guest") == 1000 + 100 + 100
    assert finish_s(found, "small") == 4000 + 200 + 4


def test_policies_that_never_preempt_have_no_such_setting() -> None:
    with pytest.raises(PolicyError, match="suspend"):
        build("fifo", {"suspend": "always"})
    assert build("dlq").suspends is None
    told = build("dlq", {"suspend": "cheaper", "suspend_guests_s": "60"}).suspends
    assert told is not None
    assert (told.only_cheaper, told.guest_s) == (True, 60.0)
