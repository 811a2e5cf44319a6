"""The agent's core: launches, ends, repeats, and what it refuses."""

import ast
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_nodeagent.model.errands import Preparation
from dlq_nodeagent.model.messages import (
    Command,
    CommandResult,
    Fence,
    Heartbeat,
    Launch,
    OpenLog,
    OpenSamples,
    Phase,
    RankReport,
    ReportAck,
)
from dlq_nodeagent.runtimes.fake.runtime import FakeRuntime
from support.agent_bench import EPOCH, AgentBench, a_launch, a_preparation, a_stop


def never(launch: Launch) -> Preparation | None:
    return None


def full_disk() -> None:
    raise OSError(28, "No space left on device")


def test_a_launch_is_taken_started_and_reported() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    assert bench.order(launch).refusal == ""
    bench.run(1)
    assert bench.runs(launch)
    assert bench.phases(launch) == [Phase.STARTED]
    assert bench.last(launch).fence == Fence(EPOCH, 1)


def test_the_end_of_a_rank_is_reported_with_its_code_and_times() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=10 exit_code=3")
    bench.order(launch)
    bench.run(12)
    report = bench.last(launch)
    assert report.phase is Phase.EXITED
    assert (report.exit_code, report.signal, report.ended_by) == (3, 0, "exited")
    assert report.run_s == pytest.approx(10.0)
    assert report.age_s <= 2.0


def test_a_signal_that_ended_a_rank_is_reported_without_a_code() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1 exit_signal=11")
    bench.order(launch)
    bench.run(3)
    assert (bench.last(launch).exit_code, bench.last(launch).signal) == (None, 11)


def test_a_done_file_is_reported_with_the_end() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1 done=yes")
    bench.order(launch)
    bench.run(3)
    assert bench.last(launch).done


def test_a_command_that_comes_twice_starts_once_and_is_told_again() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    told = len(bench.reports(launch))
    assert bench.order(launch).refusal == ""
    assert len(bench.host.attempts) == 1
    assert len(bench.reports(launch)) == told + 1
    assert bench.last(launch).phase is Phase.STARTED


def test_a_launch_that_comes_again_after_the_end_is_told_the_end() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1 exit_code=3")
    bench.order(launch)
    bench.run(3)
    assert bench.order(launch).refusal == ""
    assert (bench.last(launch).phase, bench.last(launch).exit_code) == (Phase.EXITED, 3)
    assert not bench.runs(launch)


def test_the_same_attempt_under_another_fence_is_refused() -> None:
    bench = AgentBench()
    bench.connect()
    bench.order(a_launch())
    other = a_launch(epoch=EPOCH + 1)
    assert bench.order(other, epoch=EPOCH + 1).refusal == "fence_mismatch"
    assert bench.order(a_stop(other), epoch=EPOCH + 1).refusal == "fence_mismatch"


def test_a_command_of_a_lower_epoch_than_the_highest_seen_is_refused() -> None:
    bench = AgentBench()
    bench.connect(epoch=EPOCH)
    assert bench.order(a_launch(), epoch=EPOCH - 1).refusal == "stale_epoch"
    assert bench.host.attempts == {}


def test_the_highest_epoch_is_remembered_by_the_next_agent() -> None:
    bench = AgentBench()
    bench.connect(epoch=EPOCH)
    bench.restart()
    assert bench.greet().highest_epoch == EPOCH


@pytest.mark.parametrize(
    "database",
    [
        {"system": "72", "timeline": 9},
        {"system": "71", "timeline": 1},
        {},  # a master with a file of its own
    ],
)
def test_a_master_of_another_database_is_left(database: dict[str, Any]) -> None:
    bench = AgentBench()
    bench.database = {"system": "71", "timeline": 2}
    bench.connect(epoch=EPOCH)
    bench.restart()
    bench.database = database
    bench.connect(a_launch(), epoch=EPOCH + 1)
    assert not bench.core.uplink.up
    assert bench.host.attempts == {}
    assert bench.core.highest_epoch == EPOCH


def test_a_master_whose_operator_names_the_former_database_is_obeyed() -> None:
    bench = AgentBench()
    bench.database = {"system": "71", "timeline": 2}
    bench.connect(epoch=EPOCH)
    bench.restart()
    bench.database = {"system": "72", "timeline": 1, "former_systems": ("71",)}
    bench.connect(epoch=EPOCH + 1)
    assert bench.core.uplink.up


def test_a_promoted_database_is_obeyed_with_a_higher_epoch_only() -> None:
    bench = AgentBench()
    bench.database = {"system": "71", "timeline": 2}
    bench.connect(epoch=EPOCH)
    bench.restart()
    bench.database = {"system": "71", "timeline": 3}
    bench.connect(epoch=EPOCH)
    assert not bench.core.uplink.up
    bench.connect(epoch=EPOCH + 1)
    assert bench.core.uplink.up


def test_a_rank_that_cannot_be_prepared_has_failed_to_start_and_says_why() -> None:
    bench = AgentBench()
    bench.prepare = lambda _launch: Preparation(error="the working directory /x does not exist")
    bench.connect()
    launch = a_launch()
    assert bench.order(launch).refusal == ""
    report = bench.last(launch)
    assert report.phase is Phase.START_FAILED
    assert report.error == "the working directory /x does not exist"


def test_a_command_that_does_not_exist_is_its_users_own_end_and_says_why() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="start_error=no_such_file")
    bench.order(launch)
    bench.run(2)
    report = bench.last(launch)
    assert (report.phase, report.exit_code, report.signal) == (Phase.EXITED, 127, 0)
    assert report.error == "exec: no_such_file"
    assert Phase.STARTED not in bench.phases(launch)
    assert Phase.START_FAILED not in bench.phases(launch)


def test_a_users_mistake_found_while_preparing_is_an_end_that_a_later_agent_tells_too() -> None:
    bench = AgentBench()
    bench.prepare = lambda _launch: Preparation(error="/x does not exist", exit_code=127)
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.restart()
    bench.connect()
    bench.order(launch)
    report = bench.last(launch)
    assert (report.phase, report.exit_code) == (Phase.EXITED, 127)
    assert (report.error, report.ended_by) == ("/x does not exist", "never_started")


def test_a_rank_that_prepares_for_longer_says_so() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = never
    launch = a_launch()
    bench.order(launch)
    assert bench.phases(launch) == []
    bench.run(1)
    assert bench.phases(launch) == [Phase.PREPARING]
    bench.prepare = a_preparation
    bench.run(1)
    assert bench.phases(launch) == [Phase.PREPARING, Phase.STARTED]


def test_launches_of_one_turn_wait_for_the_journal_once() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = never
    bench.journal.waits = 0
    for job in range(1, 51):
        order = Command(sequence=job, epoch=EPOCH, order=a_launch(job))
        bench.core.received(order)
    assert bench.said(CommandResult) == []
    bench.core.tick()
    assert len(bench.said(CommandResult)) == 50
    assert bench.journal.waits == 1


def test_a_journal_that_reaches_no_disk_refuses_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    monkeypatch.setattr(bench.journal, "sync", full_disk)
    assert bench.order(launch).refusal == "journal_failed"
    assert bench.last(launch).phase is Phase.START_FAILED
    monkeypatch.undo()
    bench.run(10)
    assert bench.host.attempts == {}


def test_a_plan_the_runtime_refuses_has_failed_to_start() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="no_such_knob=1")
    bench.order(launch)
    assert bench.last(launch).phase is Phase.START_FAILED


def test_a_launch_that_cannot_be_journaled_is_refused_and_never_starts() -> None:
    bench = AgentBench()
    bench.connect()
    bench.journal.fails = True
    launch = a_launch()
    assert bench.order(launch).refusal == "journal_failed"
    assert bench.last(launch).phase is Phase.START_FAILED
    assert bench.last(launch).error == "the agent cannot write its journal: No space left on device"
    assert bench.last(launch).no_room
    bench.journal.fails = False
    bench.run(10)
    assert bench.host.attempts == {}


def test_a_full_disk_stops_neither_jobs_nor_heartbeats_nor_ends() -> None:
    bench = AgentBench()
    bench.connect()
    running, ending = a_launch(1), a_launch(2, does="run_for=5 exit_code=3")
    bench.order(running)
    bench.order(ending)
    bench.run(1)
    bench.journal.fails = True
    bench.restart()
    bench.connect(running, ending, epoch=EPOCH + 1)
    bench.run(20)
    assert bench.runs(running)
    assert bench.last(ending).exit_code == 3
    assert bench.order(a_stop(running, "cancel", 5.0), epoch=EPOCH + 1).refusal == ""
    bench.run(5)
    assert not bench.runs(running)
    assert bench.order(a_launch(3), epoch=EPOCH).refusal == "stale_epoch"
    bench.journal.fails = False
    bench.run(10)
    bench.restart()
    assert bench.connect(epoch=EPOCH + 1).ranks == ()


def test_an_end_is_told_until_the_master_confirms_it() -> None:
    bench = AgentBench(report_repeat_s=10.0)
    bench.connect()
    launch = a_launch(does="run_for=5")
    bench.order(launch)
    bench.acks = False
    bench.run(40)
    ends = [r for r in bench.reports(launch) if r.phase is Phase.EXITED]
    assert len(ends) >= 3
    assert len({report.sequence for report in ends}) == 1
    bench.core.received(ReportAck(ends[-1].sequence))
    told = len(bench.reports(launch))
    bench.run(40)
    assert len(bench.reports(launch)) == told


def test_an_acknowledgement_of_an_older_report_does_not_confirm_a_newer_one() -> None:
    bench = AgentBench()
    bench.connect()
    bench.acks = False
    launch = a_launch(does="run_for=5")
    bench.order(launch)
    bench.run(2)
    started = bench.last(launch)
    bench.run(10)
    bench.core.received(ReportAck(started.sequence))
    bench.cut()
    assert [r.phase for r in bench.greet().ranks] == [Phase.EXITED]


def test_sequences_of_reports_rise_over_all_lives_of_the_agent() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    before = bench.last(launch).sequence
    bench.restart()
    assert bench.greet().ranks[0].sequence > before


def test_a_confirmed_end_is_no_part_of_the_next_hello() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1")
    bench.order(launch)
    bench.run(3)
    bench.cut()
    assert bench.connect().ranks == ()


def test_the_log_of_an_ended_rank_can_still_be_read() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1 log=hello")
    bench.order(launch)
    bench.run(3)
    bench.restart()
    bench.connect()
    bench.order(OpenLog(relay_id="r1", key=launch.key, offset=0, follow=False))
    (order, handle, never_ran), *_ = bench.errands.logs
    assert (order.relay_id, never_ran) == ("r1", "")
    assert handle is not None
    assert bench.runtime.read_log(handle, 0, 100).data == b"hello"


def test_a_log_of_an_unknown_rank_is_answered_without_a_handle() -> None:
    bench = AgentBench()
    bench.connect()
    bench.order(OpenLog(relay_id="r1", key=a_launch().key, offset=0, follow=False))
    assert bench.errands.logs[0][1:] == (None, "")


def test_a_profile_of_the_agent_is_an_errand() -> None:
    bench = AgentBench()
    bench.connect()
    order = OpenSamples(relay_id="r1", sample_s=30.0, user="olga")
    assert bench.order(order).refusal == ""
    assert bench.errands.samples == [order]


def test_the_log_of_a_rank_that_was_refused_says_why_it_never_ran() -> None:
    bench = AgentBench()
    bench.prepare = lambda _launch: Preparation(error="/x does not exist", exit_code=127)
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.order(OpenLog(relay_id="r1", key=launch.key, offset=0, follow=False))
    assert bench.errands.logs[0][1:] == (None, "/x does not exist")


def test_ended_ranks_are_forgotten_when_there_are_too_many_or_they_are_too_old() -> None:
    from dlq_nodeagent.launch.rules import AgentJobsConfig

    jobs = AgentJobsConfig(keep_count=2, keep=Seconds(100.0))
    bench = AgentBench(jobs=jobs)
    bench.connect()
    for job in (1, 2, 3):
        bench.order(a_launch(job, does="run_for=1"))
        bench.run(3)
    assert sorted(key.job_id for key in bench.host.attempts) == ["2", "3"]
    assert [key.job_id for key in bench.errands.tidied] == ["1"]
    bench.run(120)
    assert bench.host.attempts == {}
    assert bench.journal.load()[1] == ()


def test_the_heartbeat_carries_what_running_jobs_last_said() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does='run_for=100 beat={"step":5,"total":10,"loss":0.5}')
    bench.order(launch)
    bench.run(11)
    (progress,) = bench.said(Heartbeat)[-1].progress
    assert (progress.step, progress.total, progress.loss) == (5, 10, 0.5)
    assert progress.age_s is not None
    assert 3.0 < progress.age_s < 12.0


def test_a_new_checkpoint_of_a_running_rank_is_reported() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.run(2)
    bench.commit(100)
    bench.run(2)
    report = bench.last(launch)
    assert isinstance(report, RankReport)
    assert report.checkpoint is not None
    assert (report.phase, report.checkpoint.step) == (Phase.STARTED, 100)
    assert not report.checkpoint.after_notice
    told = len(bench.reports(launch))
    bench.run(5)
    assert len(bench.reports(launch)) == told


def test_what_may_be_secret_is_not_kept_after_the_end() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=5", environment={"TOKEN": "s3cret"}, script="s3cret")
    bench.order(launch)
    assert "s3cret" in repr(bench.journal.load())
    bench.run(8)
    assert bench.last(launch).phase is Phase.EXITED
    assert "s3cret" not in repr(bench.journal.load())


def test_the_core_needs_no_network_no_process_and_no_thread() -> None:
    listing = (
        "import sys, dlq_nodeagent.core\n"
        "ours = [m for n, m in sys.modules.items() if n.startswith('dlq_nodeagent.')]\n"
        "print(*(m.__file__ for m in ours), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True)
    imported = {
        name.partition(".")[0]
        for path in done.stdout.split()
        for node in ast.walk(ast.parse(Path(path).read_text()))
        for name in _imported_by(node)
    }
    assert "dlq_nodeagent" in imported
    assert not imported & {"grpc", "google", "dlq", "asyncio", "subprocess", "threading", "socket"}


def _imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_who_is_told_of_ends_looks_less_often_while_everybody_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1000 saves_for=5")
    bench.order(launch)
    bench.run(2)
    assert bench.core.pause_s() <= 0.1
    monkeypatch.setattr(FakeRuntime, "ends", lambda self: 0)
    assert bench.core.supervisor.poll_s() == 0.25
    bench.order(a_stop(launch))
    assert bench.core.supervisor.poll_s() == 0.1


def test_heartbeats_leave_early_enough_to_arrive_within_their_interval() -> None:
    bench = AgentBench()
    bench.connect()
    sent_s: list[float] = []
    for _ in range(400):
        bench.clock.advance(0.1)
        before = len(bench.said(Heartbeat))
        bench.core.tick()
        bench.settle()
        if len(bench.said(Heartbeat)) > before:
            sent_s.append(bench.clock.boottime_s())
    gaps = [later - earlier for earlier, later in pairwise(sent_s)]
    assert len(gaps) >= 7
    assert min(gaps) > 4.0
    assert max(gaps) <= 4.7, "the interval is 5 s, and the way to the master takes time too"
