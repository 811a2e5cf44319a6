"""Nodes that fall silent, come back, boot, lie, or are fenced; and a master that restarts
meanwhile.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import Conflict, IllegalTransition, NotFound, StaleFence
from dlq_master.control.config import LeaseConfig, NodesConfig
from dlq_master.control.stimuli import (
    CommandDone,
    FenceNode,
    ForgetNode,
    Heartbeat,
    RankReports,
    ReportedPhase,
    ReportedRank,
    SetNodeFlags,
)
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import EndReason, JobState, RunRules
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.store.batch import COPY, Batch
from support.master_harness import ROOT, Master, config_of
from support.running import running
from support.sim_agent import SimAgent

HOLD_S = 3600.0


def silence(master: Master, seconds: float, *speaking: SimAgent) -> None:
    """Let time pass in steps shorter than the TTL; only `speaking` are heard."""
    while seconds > 0.0:
        step_s = min(15.0, seconds)
        seconds -= step_s
        master.clock.advance(step_s)
        for agent in speaking:
            agent.heartbeat()
        master.tick()


def test_silence_makes_a_node_suspect_then_unreachable_and_its_attempt_unknown(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    master.tick(19.9)
    assert master.node("gpu01").state == "up"
    master.tick(0.1)
    assert master.node("gpu01").state == "suspect"
    assert master.attempt(key.job_id).state == "running"
    master.tick(5.0)
    assert master.node("gpu01").state == "unreachable"
    assert master.attempt(key.job_id).state == "unknown"


def test_a_job_of_whose_end_its_node_has_lost_the_record_is_lost_and_runs_again(
    master: Master, agent: SimAgent
) -> None:
    """The agent knows that it ended, and the record of the end is gone: a power cut, say."""
    agent.hello()
    job = master.submit(1)
    agent.obey()
    ((key, rank),) = agent.ranks.items()
    rank.phase, rank.ended_by = ReportedPhase.EXITED, "never_started"
    agent.boot_id = "boot-2"
    agent.hello()
    again = master.job(job.job_id)
    assert (again.infra_failures, again.attempts) == (1, key.number + 1)


def test_a_node_that_speaks_again_has_everything_as_it_was(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    silence(master, 600.0)
    agent.heartbeat()

    assert master.node("gpu01").state == "up"
    assert master.attempt(key.job_id).state == "running"
    assert "attempt_node_lost" not in master.words()


@pytest.mark.parametrize("restart", [False, True])
def test_an_exit_during_a_silence_is_told_with_the_next_hello(
    master: Master, agent: SimAgent, restart: bool
) -> None:
    key = running(master, agent)
    agent.cut()
    silence(master, 60.0)
    agent.exit(key, 0)
    if restart:
        master.restart()
    agent.hello()

    assert master.job(key.job_id).state is JobState.COMPLETED, master.story()


def test_nothing_new_is_placed_on_a_suspect_node(master: Master, agent: SimAgent) -> None:
    master.tick(20.0)
    job_id = master.submit().job_id

    assert master.job(job_id).live_attempt is None
    assert master.why(job_id).reasons[0].code == "nodes_closed"
    agent.heartbeat()
    assert master.job(job_id).live_attempt == 1


def test_a_job_is_given_away_only_after_the_hold_and_its_margin(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    silence(master, HOLD_S + 4.0, other)
    agent.guard()
    assert agent.living() == [], "the shim ends it before the master may start it again"
    assert master.attempt(key.job_id).state == "unknown"
    silence(master, 1.0, other)

    assert master.node("gpu01").state == "down"
    job = master.job(key.job_id)
    assert (job.live_attempt, job.infra_failures, job.end_reason) == (2, 1, EndReason.NODE_LOST)
    other.obey()
    assert AttemptKey(key.job_id, 2) in other.ranks


def test_a_job_may_have_its_own_hold(master: Master, agent: SimAgent, other: SimAgent) -> None:
    job_id = master.submit(4, rules=RunRules(hold_s=120.0)).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    assert agent.ranks[key].launch.hold_s == 120.0
    agent.start(key)
    agent.report()
    silence(master, 126.0, other)

    assert master.job(job_id).live_attempt == 2
    assert master.node("gpu01").state == "unreachable", "the node's own hold is longer"


def test_an_agent_that_was_given_up_finds_nothing_wanted_when_it_returns(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    silence(master, HOLD_S + 10.0, other)
    agent.guard()
    opened = agent.hello()

    assert opened.launches == ()
    assert master.job(key.job_id).live_attempt == 2
    assert master.ended(key.job_id, 1).state == "node_lost"
    assert master.node("gpu01").state == "up"


def test_a_rank_that_still_runs_although_it_was_given_up_is_stopped(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    """The machine was not off after all, or the whole host had been frozen."""
    key = running(master, agent)
    agent.cut()
    silence(master, 21.0, other)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="off"))
    assert master.job(key.job_id).live_attempt == 2
    agent.hello()
    agent.obey()

    assert agent.ranks[key].kill
    agent.exit(key, 137)
    agent.report()
    assert master.job(key.job_id).live_attempt == 2
    assert master.state.attempts.outbox.keys() == {
        row.sequence
        for row in master.state.attempts.outbox.values()
        if row.node_id == other.node_id
    }


def test_a_fence_ends_the_session_so_that_the_agent_must_say_hello(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    session = agent.session_id
    silence(master, 21.0)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="off"))

    assert master.wires.closed == [(agent.node_id, session)]
    assert master.node("gpu01").state == "down"
    agent.hello()
    agent.obey()
    assert agent.ranks[key].kill
    assert master.node("gpu01").strayed == {0, 1, 2, 3}
    assert master.job(key.job_id).live_attempt is None, "its GPUs look free and are not"
    agent.exit(key, 137)
    agent.report()
    assert master.node("gpu01").strayed == frozenset()
    assert master.job(key.job_id).live_attempt == 2


@pytest.mark.parametrize(
    "why", ["gpu_not_released: GPU-0: 900 MB used", "unkillable", "look_timeout"]
)
def test_a_node_whose_gpus_cannot_be_given_back_takes_no_work_until_they_are(
    master: Master, agent: SimAgent, why: str
) -> None:
    key = running(master, agent, gpus=2)
    agent.cling(key, why)
    agent.report()

    assert master.node("gpu01").flags == {NodeFlag.CLEANING}
    assert master.node("gpu01").flag_reason == f"{key}: {why}"
    waiting = master.submit(1).job_id
    assert master.job(waiting).live_attempt is None
    master.restart()
    agent.hello()
    assert master.node("gpu01").flags == {NodeFlag.CLEANING}, "the agent tells it anew"
    agent.exit(key)
    agent.report()
    assert master.node("gpu01").flags == frozenset()
    assert (master.job(key.job_id).state, master.job(waiting).live_attempt) == ("completed", 1)


def test_a_rank_that_is_only_stopping_closes_nothing(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    agent.cling(key, "")
    agent.report()
    assert master.node("gpu01").flags == frozenset()


def test_an_orphan_of_another_database_is_left_alone_and_keeps_its_node_closed(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    lost = masters_without(master)
    agent.master = lost
    agent.hello()
    agent.obey()

    assert agent.living() == [key]
    assert not agent.ranks[key].noticed
    assert "orphan_seen" in lost.words()
    lost.restart()
    job_id = lost.submit().job_id
    assert job_id > key.job_id, "a second job of that id would be taken for the first"
    agent.hello()
    assert lost.job(job_id).live_attempt is None
    agent.exit(key)
    agent.report()
    assert lost.job(job_id).live_attempt == 1
    lost.close()


def test_a_master_on_a_copy_of_the_past_gives_no_number_twice(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    copy = masters_without(master)
    copy.store.write(Batch(meta={COPY: "yes"}))
    copy.start()
    job = copy.submit()  # before any node could tell of its orphans
    assert job.job_id > key.job_id + 1_000
    assert copy.state.epoch > master.state.epoch + 100, "nor a fence"
    agent.master = copy
    agent.hello()
    agent.obey()
    assert agent.living() == [key]
    copy.restart()
    assert copy.submit().job_id == job.job_id + 1, "once is enough"
    copy.close()


def test_a_node_that_knows_another_attempt_by_that_name_costs_one_attempt(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.exit(key)
    agent.report()
    copy = masters_without(master)
    copy.restart()
    agent.master = copy
    agent.hello()
    assert copy.submit().job_id == key.job_id
    agent.obey()

    assert copy.ended(key.job_id, 1).state == "start_failed"
    again = AttemptKey(key.job_id, 2)
    agent.obey()
    agent.start(again)
    assert agent.living() == [again]
    copy.close()


def test_a_welcome_that_wants_what_a_node_can_never_take_costs_one_attempt(
    master: Master, agent: SimAgent
) -> None:
    job_id = master.submit().job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    assert master.state.attempts.outbox == {}, "no command is left that it could refuse"
    agent.cut()
    rank = agent.ranks[key]
    rank.launch = replace(rank.launch, epoch=rank.launch.epoch + 40)
    rank.phase = ReportedPhase.STARTED
    agent.hello()

    assert master.ended(job_id, 1).state == "start_failed", master.story()
    assert master.job(job_id).failed_nodes == ("gpu01",)


def masters_without(master: Master) -> Master:
    """A master whose database was restored from before everything, on the same clock."""
    return Master(clock=master.clock)


def test_another_boot_id_loses_what_ran_at_once(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    agent.reboot()
    agent.hello()

    assert "the host has booted" in [event.cause for event in master.events()]
    assert master.ended(key.job_id, 1).state == "node_lost"
    assert master.job(key.job_id).live_attempt == 2


@pytest.mark.parametrize("reboots", [True, False])
def test_a_gang_that_lost_a_rank_without_a_record_is_ended_and_starts_again(
    master: Master, agent: SimAgent, other: SimAgent, reboots: bool
) -> None:
    key = running(master, agent, other)
    agent.cut()
    agent.vanish(key)
    if reboots:
        agent.boot_id += "+"
    agent.hello()
    other.obey()
    assert other.ranks[key].kill, "what is left of it must end at once"
    other.exit(key, 143)
    other.report()

    assert master.ended(key.job_id, 1).state == "node_lost"
    assert master.job(key.job_id).live_attempt == 2


def test_a_rank_that_ended_without_a_record_is_nobodys_success_and_not_the_jobs_failure(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.vanish(key)
    agent.report()

    assert master.ended(key.job_id, 1).state == "node_lost"
    assert master.job(key.job_id).live_attempt == 2


def test_an_exit_recorded_before_a_reboot_still_counts(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    agent.cut()
    agent.exit(key, 0)
    agent.reboot()
    agent.hello()

    assert master.job(key.job_id).state is JobState.COMPLETED


def test_a_rank_that_ran_and_of_which_its_agent_knows_nothing_is_lost_after_its_hold(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    agent.ranks.clear()
    agent.hello()
    assert master.attempt(key.job_id).state == "unknown"

    for _ in range(359):
        agent.heartbeat()
        master.tick(10.0)
    agent.cut()
    agent.hello()  # not the beginning of another hold
    agent.obey()
    assert master.attempt(key.job_id).state == "unknown"
    assert not agent.ranks
    for _ in range(3):
        agent.heartbeat()
        master.tick(10.0)

    assert master.ended(key.job_id, 1).state == "node_lost"
    agent.obey()
    assert AttemptKey(key.job_id, 2) in agent.ranks


def test_a_launch_that_was_lost_on_the_line_is_sent_again(master: Master, agent: SimAgent) -> None:
    job_id = master.submit().job_id
    agent.cut()
    agent.hello()
    assert AttemptKey(job_id, 1) in agent.ranks
    agent.obey()

    assert master.state.attempts.outbox == {}
    assert master.job(job_id).attempts == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_stop_that_was_lost_on_the_line_is_sent_again(
    master: Master, agent: SimAgent, restart: bool
) -> None:
    key = running(master, agent)
    master.cancel(key.job_id)
    agent.cut()
    if restart:
        master.restart()
    agent.hello()

    assert agent.ranks[key].noticed


def test_a_rank_not_yet_started_when_its_job_was_cancelled_does_not_start(
    master: Master, agent: SimAgent
) -> None:
    job_id = master.submit().job_id
    agent.obey()
    agent.cut()
    master.cancel(job_id)
    agent.hello()
    agent.obey()
    agent.report()

    assert agent.ranks[AttemptKey(job_id, 1)].phase is ReportedPhase.START_FAILED
    assert master.job(job_id).live_attempt is None
    assert master.loop.published.free_gpu_count(agent.node_id) == 4


def test_a_stop_for_a_launch_that_never_arrived_frees_the_gpus(
    master: Master, agent: SimAgent
) -> None:
    agent.cut()
    job_id = master.submit().job_id
    assert master.job(job_id).live_attempt == 1
    master.cancel(job_id)
    agent.hello()
    agent.obey()
    agent.report()

    assert agent.ranks == {}
    assert master.job(job_id).live_attempt is None
    assert master.state.attempts.outbox == {}


def test_reports_of_an_older_session_are_refused(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    old = agent.session_id
    assert old is not None
    agent.hello()
    agent.exit(key)
    (answer,) = master.turn(
        RankReports(node_id=agent.node_id, session_id=old, reports=tuple(agent.waiting_reports()))
    )

    assert isinstance(answer, StaleFence)
    assert master.attempt(key.job_id).state == "running"


def test_a_heartbeat_or_an_answer_of_an_older_session_counts_for_nothing(
    master: Master, agent: SimAgent
) -> None:
    old = agent.session_id
    assert old is not None
    agent.cut()
    agent.hello()
    agent.cut()
    job_id = master.submit().job_id
    row = next(iter(master.state.attempts.outbox))
    silence(master, 10.0)
    master.turn(
        Heartbeat(node_id=agent.node_id, session_id=old),
        CommandDone(node_id=agent.node_id, session_id=old, sequence=row),
    )
    silence(master, 10.0)

    assert master.node("gpu01").state == "suspect"
    assert row in master.state.attempts.outbox
    assert master.job(job_id).live_attempt == 1


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 99},
        {"key": AttemptKey(JobId(1), 2)},
        {"key": AttemptKey(JobId(77), 1)},
        {"node_rank": 1},
        {"node_rank": -1},
    ],
    ids=str,
)
def test_a_report_with_another_fence_changes_nothing_and_is_acknowledged(
    master: Master, agent: SimAgent, change: dict[str, object]
) -> None:
    key = running(master, agent)
    agent.exit(key, 5)
    report = replace(agent.waiting_reports()[0], **change)  # type: ignore[arg-type] # any field
    before = master.job(key.job_id)
    assert agent.session_id is not None
    (acknowledged,) = master.turn(
        RankReports(node_id=agent.node_id, session_id=agent.session_id, reports=(report,))
    )

    assert acknowledged == report.sequence
    assert master.job(key.job_id) == before


def test_a_node_cannot_end_a_rank_of_another_node(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    agent.exit(key, 5)
    report = agent.waiting_reports()[0]
    other.send([report])

    assert master.attempt(key.job_id).state == "running"


def test_a_late_report_never_takes_a_phase_back(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    early = agent.ranks[key]
    preparing = replace(agent._report(key), phase=ReportedPhase.PREPARING)
    agent.send([preparing])
    assert master.attempt(key.job_id).state == "running"
    assert master.attempt(key.job_id).ranks[0].phase == "running"
    agent.exit(key)
    agent.report()
    agent.send([replace(preparing, phase=ReportedPhase.STARTED, sequence=99)])

    assert early.ended
    assert master.job(key.job_id).state is JobState.COMPLETED


def test_a_gang_with_one_silent_node_is_unknown_and_its_other_ranks_are_left_alone(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    silence(master, 60.0, other)
    assert master.attempt(key.job_id).state == "unknown"
    other.obey()
    assert other.living() == [key]
    assert not other.ranks[key].noticed
    agent.heartbeat()
    assert master.attempt(key.job_id).state == "running"


def test_a_gang_that_loses_a_node_ends_everywhere_before_it_starts_again(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, other)
    silence(master, HOLD_S + 10.0, other)
    assert master.attempt(key.job_id).state == "unknown"
    other.obey()
    assert other.ranks[key].kill
    other.exit(key, 137)
    other.report()

    assert master.ended(key.job_id, 1).state == "node_lost"
    assert master.job(key.job_id).live_attempt is None, "it needs two nodes"


def test_a_stop_asked_during_a_silence_reaches_the_node_when_it_returns(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    silence(master, 60.0)
    master.cancel(key.job_id)
    assert master.attempt(key.job_id).state == "unknown"
    agent.hello()

    assert agent.ranks[key].noticed
    assert master.attempt(key.job_id).state == "pausing"


def test_a_shim_that_ended_its_rank_in_silence_sends_the_job_back_to_the_queue(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    master.clock.advance(HOLD_S)
    agent.guard()
    agent.hello()

    job = master.job(key.job_id)
    assert (job.end_reason, job.live_attempt) == (EndReason.PREEMPTED_LOST, 2)


@pytest.mark.parametrize(
    ("saves", "code", "signal", "reason"),
    [
        (False, None, 15, EndReason.PREEMPTED_LOST),  # it knows nothing of signals
        (False, 143, 0, EndReason.PREEMPTED_LOST),
        (False, 0, 0, EndReason.PREEMPTED_LOST),
        (False, 99, 0, EndReason.PREEMPTED),
        (True, 143, 0, EndReason.PREEMPTED),
        (True, 0, 0, EndReason.PREEMPTED),
    ],
)
def test_whoever_leaves_because_its_shim_told_it_to_goes_back_to_the_queue(
    master: Master,
    agent: SimAgent,
    saves: bool,
    code: int | None,
    signal: int,
    reason: EndReason,
) -> None:
    key = running(master, agent)
    agent.cut()
    master.clock.advance(HOLD_S - 10.0)
    agent.guard()
    if saves:
        agent.save(key, 7)
    if code is None:
        agent.crash(key, signal)
    else:
        agent.exit(key, code)
    agent.hello()

    job = master.job(key.job_id)
    assert (job.end_reason, job.live_attempt, job.restarts) == (reason, 2, 0)
    assert master.ended(key.job_id, 1).state == reason.value


def test_whoever_fails_before_its_shim_has_told_it_anything_has_failed(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    master.clock.advance(60.0)
    agent.guard()
    agent.exit(key, 143)
    agent.hello()

    job = master.job(key.job_id)
    assert (job.state, job.end_reason) == (JobState.FAILED, EndReason.USER_ERROR)


def test_when_many_nodes_vanish_at_once_nothing_is_given_away(
    masters: Callable[..., Master],
) -> None:
    hold_s = 600.0
    master = masters(replace(config_of(), lease=LeaseConfig(hold=Seconds(hold_s))))
    agents = [SimAgent(master, NodeId(f"gpu{number:02}")) for number in range(1, 9)]
    for one in agents:
        one.hello()
    keys = [running(master, one) for one in agents]
    silence(master, 2.0 * hold_s, *agents[3:])
    assert master.loop.published.freeze_reason()
    for key in keys:
        assert master.attempt(key.job_id).key == key
    assert "attempt_node_lost" not in master.words()
    agents[0].heartbeat()
    silence(master, 1.0, *agents[3:])

    lost = [key for key in keys if master.ended(key.job_id, 1).state == "node_lost"]
    assert lost == keys[1:3], "two that stay away are an accident, not our own fault"


def test_nodes_that_stay_away_beyond_the_longest_freeze_are_given_up(
    masters: Callable[..., Master],
) -> None:
    lease = LeaseConfig(hold=Seconds(600.0), freeze_longest=Seconds(1_800.0))
    master = masters(replace(config_of(), lease=lease))
    agents = [SimAgent(master, NodeId(f"gpu{number:02}")) for number in range(1, 9)]
    for one in agents:
        one.hello()
    keys = [running(master, one) for one in agents]
    silence(master, 1_800.0, *agents[4:])
    assert master.loop.published.freeze_reason()
    assert "attempt_node_lost" not in master.words()
    silence(master, 40.0, *agents[4:])

    assert not master.loop.published.freeze_reason()
    lost = [key for key in keys if master.ended(key.job_id, 1).state == "node_lost"]
    assert lost == keys[:4]


def test_a_node_that_answers_is_not_fenced(master: Master, agent: SimAgent) -> None:
    with pytest.raises(IllegalTransition):
        master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="off"))
    assert master.node("gpu01").state == "up"


def test_after_a_restart_every_silence_counts_anew(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent)
    silence(master, HOLD_S - 100.0, other)
    master.restart()
    other.hello()
    silence(master, HOLD_S, other)
    assert master.attempt(key.job_id).state == "unknown"
    silence(master, 10.0, other)
    assert master.job(key.job_id).live_attempt == 2


def test_a_started_master_places_nothing_until_its_nodes_are_back_or_its_grace_is_over(
    masters: Callable[..., Master],
) -> None:
    master = masters(replace(config_of(), nodes=NodesConfig(start_grace=Seconds(60.0))))
    agent, other = (SimAgent(master, NodeId(name)) for name in ("gpu01", "gpu02"))
    agent.hello()
    other.hello()
    master.restart()
    agent.hello()
    waiting = master.submit().job_id
    assert master.job(waiting).live_attempt is None
    assert master.why(waiting).reasons[0].code == "master_starting"
    other.hello()
    assert master.job(waiting).live_attempt == 1

    master.restart()
    agent.hello()
    late = master.submit().job_id
    silence(master, 60.0, agent)
    assert master.job(late).live_attempt == 1, master.story()


def test_an_agent_that_has_obeyed_a_higher_epoch_raises_ours(
    master: Master, agent: SimAgent
) -> None:
    agent.cut()
    agent.highest_epoch = 41
    assert agent.hello().epoch == 42
    job_id = master.submit().job_id
    assert master.attempt(job_id).epoch == 42
    agent.obey()
    agent.report()
    assert master.attempt(job_id).state == "preparing"
    master.restart()
    assert master.state.epoch == 43


def test_a_draining_node_gets_nothing_new_and_what_it_has_saves_and_goes_elsewhere(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, agent, gpus=2)
    flags = SetNodeFlags(
        caller=ROOT,
        request_id="d",
        node_id=agent.node_id,
        set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(),
        reason="disk",
    )
    master.ask(flags)
    assert master.attempt(key.job_id).stop_cause == "drain"
    agent.obey()
    agent.exit(key, 99)
    agent.report()

    assert master.state.cluster.attempts_on(agent.node_id) == ()
    assert master.state.cluster.attempts_on(other.node_id) == (AttemptKey(key.job_id, 2),)
    master.restart()
    agent.hello()
    assert master.node("gpu01").flags == {NodeFlag.DRAINING}
    master.ask(replace(flags, request_id="u", set_flags=frozenset(), clear_flags=flags.set_flags))
    assert master.node("gpu01").flags == frozenset()


def test_flags_of_many_nodes_change_in_one_turn_or_not_at_all(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    drain = SetNodeFlags(
        caller=ROOT,
        request_id="d",
        node_id=agent.node_id,
        set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(),
        reason="power",
        more=(other.node_id,),
    )
    with pytest.raises(NotFound):
        master.ask(replace(drain, more=(other.node_id, NodeId("gpu99"))))
    assert master.node("gpu01").flags == frozenset()
    master.ask(drain)
    waiting = [master.submit(4).job_id for _ in range(2)]
    assert [master.job(job_id).live_attempt for job_id in waiting] == [None, None]
    undrain = replace(drain, request_id="u", set_flags=frozenset(), clear_flags=drain.set_flags)
    before = master.state.journal.next_sequence
    master.ask(undrain)  # one turn, and one plan in it: both start
    assert [master.job(job_id).live_attempt for job_id in waiting] == [1, 1]
    master.ask(undrain)
    events = master.loop.published.events(before - 1, 100)
    assert [one.kind for one in events].count("node_flag_cleared") == 2


def test_only_a_node_that_is_down_and_empty_can_be_forgotten(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    forget = ForgetNode(caller=ROOT, request_id="", node_id=agent.node_id)
    with pytest.raises(IllegalTransition):
        master.ask(forget)
    silence(master, 21.0, other)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="sold"))
    master.ask(forget)
    master.ask(forget)
    master.restart()

    assert agent.node_id not in master.state.cluster.nodes
    agent.hello()
    assert master.node("gpu01").state == "up"


def test_a_node_forgotten_and_registered_in_one_turn_is_known(
    master: Master, agent: SimAgent
) -> None:
    from dlq_master.control.stimuli import OpenSession

    silence(master, 21.0)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=agent.node_id, reason="sold"))
    master.turn(
        ForgetNode(caller=ROOT, request_id="", node_id=agent.node_id),
        OpenSession(node_id=agent.node_id, facts=agent.facts(), highest_epoch=1, reports=()),
    )

    assert master.node("gpu01").state == "up"
    master.restart()
    assert agent.node_id in master.state.cluster.nodes


def test_gpus_that_vanish_under_a_running_job_do_not_disturb_it(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, agent)
    agent.cut()
    agent.gpus = 2
    agent.hello()
    assert master.attempt(key.job_id).state == "running"
    agent.exit(key)
    agent.report()
    assert master.job(key.job_id).state is JobState.COMPLETED
    assert master.loop.published.free_gpu_count(agent.node_id) == 2


def test_a_node_with_a_hello_in_the_turn_of_its_first_job_gets_the_launch_once(
    master: Master, agent: SimAgent
) -> None:
    agent.cut()
    job_id = master.submit().job_id
    opened = agent.hello()
    assert [launch.key for launch in opened.launches] == [AttemptKey(job_id, 1)]
    agent.obey()
    agent.report()

    assert master.state.attempts.outbox == {}
    assert master.words(job_id).count("attempt_preparing") == 1


def test_conflicting_fence_and_forget_never_lose_an_attempt(
    master: Master, agent: SimAgent
) -> None:
    """A fenced node holds nothing; a node that holds something is not forgotten."""
    key = running(master, agent)
    with pytest.raises((IllegalTransition, Conflict)):
        master.ask(ForgetNode(caller=ROOT, request_id="", node_id=agent.node_id))
    assert master.attempt(key.job_id).state == "running"


def test_a_rank_that_is_told_again_and_again_is_stopped_by_one_command(
    master: Master, agent: SimAgent
) -> None:
    """The node is in other hands: it takes no command, and each of them would be kept for it."""
    key = running(master, agent)
    epoch = master.attempt(key.job_id).epoch
    agent.exit(key)
    agent.report()
    session_id = master.state.nodes.sessions[NodeId("gpu01")]
    for number in range(20):
        told = ReportedRank(
            sequence=1_000 + number,
            key=key,
            epoch=epoch,
            node_rank=0,
            phase=ReportedPhase.STARTED,
        )
        master.ask(RankReports(node_id=NodeId("gpu01"), session_id=session_id, reports=(told,)))
    assert [row.kind for row in master.state.attempts.outbox.of_rank(key, 0)] == ["stop"]


def test_endless_strays_end_the_session_of_their_node(
    master: Master, agent: SimAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_master.control.attempts.reports.MOST_STRAYS", 5)
    running(master, agent)
    session_id = master.state.nodes.sessions[NodeId("gpu01")]
    told = [
        ReportedRank(
            sequence=1_000 + number,
            key=AttemptKey(JobId(500 + number), 1),
            epoch=1,
            node_rank=0,
            phase=ReportedPhase.STARTED,
        )
        for number in range(20)
    ]
    master.ask(RankReports(node_id=NodeId("gpu01"), session_id=session_id, reports=tuple(told)))
    assert NodeId("gpu01") not in master.state.nodes.sessions
    assert len(master.state.nodes.unowned[NodeId("gpu01")]) == 5
    agent.hello()
    assert NodeId("gpu01") in master.state.nodes.sessions
