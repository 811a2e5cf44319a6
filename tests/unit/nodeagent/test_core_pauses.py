"""The agent's core when it is told to stop a rank: notice, signal, checkpoint, end, proof."""

import signal
from dataclasses import replace
from typing import Any

import pytest

from dlq_nodeagent.model.errands import Look, Purpose
from dlq_nodeagent.model.messages import Launch, Phase
from dlq_nodeagent.model.port import ExitRecord, ExitWhy
from dlq_nodeagent.model.rank import Rank, RankState, Stopping
from dlq_nodeagent.model.report import report_of
from support.agent_bench import AgentBench, a_launch, a_preparation, a_stop

BEATING = "run_for=1000 beat={}"
STAYS = f"{BEATING} ignores_signals=yes"


def running(bench: AgentBench, does: str = BEATING) -> Launch:
    """A launch that runs, two seconds in."""
    bench.connect()
    launch = a_launch(does=does)
    bench.order(launch)
    bench.run(2)
    return launch


def test_a_pause_gives_notice_and_signal_and_reports_the_save() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} saves_for=20")
    assert bench.order(a_stop(launch)).refusal == ""
    bench.run(1)
    notice = bench.notice(launch)
    assert notice is not None
    assert notice.kind == "preempt"
    assert notice.deadline_s - bench.clock.now_s() == pytest.approx(59, abs=1.5)
    bench.run(10)
    bench.commit(123)
    bench.run(12)
    report = bench.last(launch)
    assert (report.phase, report.exit_code, report.ended_by) == (Phase.EXITED, 99, "exited")
    assert report.checkpoint is not None
    assert (report.checkpoint.step, report.checkpoint.after_notice) == (123, True)
    assert report.save_s == pytest.approx(11, abs=1.5)


def test_a_checkpoint_from_before_the_notice_does_not_answer_it() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} saves_for=5")
    bench.commit(50)
    bench.order(a_stop(launch))
    bench.run(10)
    report = bench.last(launch)
    assert report.phase is Phase.EXITED
    assert report.checkpoint is not None
    assert (report.checkpoint.step, report.checkpoint.after_notice) == (50, False)
    assert report.save_s is None


def test_without_a_notice_the_job_itself_says_what_a_stop_would_take() -> None:
    bench = AgentBench()
    launch = running(bench, 'run_for=1000 beat={"step":5,"step_s":0.5,"last_save_s":4.0}')
    bench.commit(50)
    bench.run(10)
    assert bench.last(launch).save_s == 4.5


def test_a_checkpoint_seen_only_after_the_end_still_answers_the_notice() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} saves_for=5")
    bench.order(a_stop(launch))
    bench.run(4.5)
    bench.answers_looks = False
    bench.commit(77)
    bench.run(2)
    bench.answers_looks = True
    bench.run(2)
    report = bench.last(launch)
    assert report.phase is Phase.EXITED
    assert report.checkpoint is not None
    assert report.checkpoint.after_notice


def test_who_ends_while_its_notice_waits_was_told_nothing() -> None:
    """For its first beat, in the start-up grace."""
    bench = AgentBench()
    launch = running(bench, "run_for=8")
    bench.order(a_stop(launch))
    bench.run(10)
    report = bench.last(launch)
    assert (report.exit_code, report.noticed, report.unnoticed) == (0, "", True)


def test_who_ends_just_before_its_notice_is_given_was_told_nothing() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=10 beat={}")
    bench.hangs_on = Purpose.BASELINE
    bench.order(a_stop(launch))
    bench.run(1)
    bench.clock.advance(8.0)
    bench.core.looked(launch.key, Purpose.BASELINE, Look())
    assert bench.notice(launch) is None
    bench.run(1)
    report = bench.last(launch)
    assert (report.exit_code, report.noticed, report.unnoticed) == (0, "", True)


@pytest.mark.parametrize(("does", "grace_s"), [("saves_for=5", 60.0), ("", 60.0), ("", 0.0)])
def test_who_was_told_or_killed_did_not_end_unnoticed(does: str, grace_s: float) -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} {does}")
    bench.order(replace(a_stop(launch), grace_s=grace_s))
    bench.run(10)
    report = bench.last(launch)
    assert (report.phase, report.unnoticed) == (Phase.EXITED, False)


def test_a_notice_that_was_begun_and_of_which_the_shim_knows_nothing_proves_nothing() -> None:
    """The agent died between the file and the shim: the job may have read the file."""
    record = ExitRecord(key=a_launch().key, epoch=1, why=ExitWhy.EXITED, code=0, signal=None)
    begun = Stopping(cause="pause", grace_s=60.0, due_s=1.0, noticed_s=1.0)
    asked = Stopping(cause="pause", grace_s=60.0, due_s=1.0)
    kill = Stopping(cause="cancel", grace_s=0.0, due_s=1.0, noticed_s=1.0)
    for stopping, unnoticed in ((begun, False), (asked, True), (kill, True), (None, True)):
        rank = Rank(launch=a_launch(), state=RankState.ENDED, stopping=stopping, record=record)
        assert report_of(rank, sequence=1, now_s=2.0).unnoticed is unnoticed
    lost = replace(record, why=ExitWhy.SHIM_LOST, code=None)
    rank = Rank(launch=a_launch(), state=RankState.ENDED, record=lost)
    assert not report_of(rank, sequence=1, now_s=2.0).unnoticed


def test_a_job_without_a_beat_is_told_only_after_the_start_up_grace() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=1000 saves_for=1")
    bench.order(a_stop(launch))
    bench.run(15)
    assert bench.notice(launch) is None
    assert bench.runs(launch)
    assert bench.last(launch).phase is Phase.STOPPING
    bench.run(8)
    assert not bench.runs(launch)


def test_the_first_beat_of_a_job_that_shall_leave_is_seen_at_the_next_tick() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=1000 saves_for=5")
    bench.order(a_stop(launch))
    bench.run(0.3, step_s=0.1)
    assert bench.notice(launch) is None
    job = bench.host.attempts[launch.key].job
    bench.host.attempts[launch.key].job = replace(job, beat="{}")
    bench.run(0.1, step_s=0.1)
    assert bench.notice(launch) is not None


@pytest.mark.parametrize("cause", ["cancel", "gang_failure", "superseded"])
def test_a_stop_that_wants_no_checkpoint_waits_for_nothing(cause: str) -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=1000")
    bench.order(a_stop(launch, cause))
    bench.run(0.5)
    assert not bench.runs(launch)
    assert bench.last(launch).signal == signal.SIGTERM


def test_a_delayed_stop_gives_notice_after_the_delay() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.order(a_stop(launch, delay_s=30.0))
    bench.run(29)
    assert bench.notice(launch) is None
    bench.run(2)
    assert not bench.runs(launch)


def test_a_stop_without_grace_kills_at_once() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} ignores_signals=yes")
    bench.order(a_stop(launch, "cancel", 0.0))
    bench.run(0.5)
    report = bench.last(launch)
    assert (report.phase, report.signal, report.ended_by) == (Phase.EXITED, 9, "killed")


def test_a_job_that_ignores_everything_is_killed_at_the_end_of_the_grace() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} ignores_signals=yes")
    bench.order(a_stop(launch, grace_s=60))
    bench.run(58)
    assert bench.runs(launch)
    bench.run(4)
    report = bench.last(launch)
    assert (report.signal, report.ended_by) == (9, "stopped")


def test_a_job_that_has_saved_and_stays_is_ended_soon() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} ignores_signals=yes")
    bench.order(a_stop(launch, grace_s=600))
    bench.run(5)
    bench.commit(1)
    bench.run(25)
    assert not bench.runs(launch)
    report = bench.last(launch)
    assert report.checkpoint is not None
    assert report.checkpoint.after_notice


def test_a_repeated_stop_changes_nothing() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} ignores_signals=yes")
    stop = a_stop(launch, grace_s=60)
    bench.order(stop)
    bench.run(30)
    bench.order(stop)
    bench.run(32)
    assert not bench.runs(launch)


def test_a_stop_that_ends_sooner_wins() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} ignores_signals=yes")
    bench.order(a_stop(launch, grace_s=600))
    bench.run(5)
    bench.order(a_stop(launch, "cancel", 10.0))
    bench.run(12)
    assert not bench.runs(launch)


def test_a_kill_overrides_a_stop_that_waits() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=1000")
    bench.order(a_stop(launch, grace_s=600, delay_s=300.0))
    bench.run(2)
    bench.order(a_stop(launch, "gang_failure", 0.0))
    bench.run(1)
    assert not bench.runs(launch)


def test_a_stop_of_a_rank_that_is_being_prepared_means_that_it_never_runs() -> None:
    bench = AgentBench()
    bench.connect()
    bench.prepare = lambda _launch: None
    launch = a_launch()
    bench.order(launch)
    bench.order(a_stop(launch))
    report = bench.last(launch)
    assert (report.phase, report.ended_by) == (Phase.EXITED, "never_started")
    from support.agent_bench import a_preparation

    bench.prepare = a_preparation
    bench.run(5)
    assert bench.host.attempts == {}


def test_a_stop_of_an_unknown_rank_is_answered_with_absent() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    assert bench.order(a_stop(launch)).refusal == ""
    assert bench.last(launch).phase is Phase.ABSENT
    assert bench.last(launch).fence == launch.fence


def test_a_launch_that_its_stop_has_overtaken_is_refused() -> None:
    bench = AgentBench()
    bench.connect()
    bench.acks = False
    launch = a_launch()
    bench.order(a_stop(launch))
    assert bench.order(launch).refusal == "stopped"
    assert bench.host.attempts == {}


def test_a_stop_after_the_end_is_told_the_end_again() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=1")
    bench.run(2)
    told = len(bench.reports(launch))
    assert bench.order(a_stop(launch)).refusal == ""
    assert len(bench.reports(launch)) == told + 1
    assert bench.last(launch).phase is Phase.EXITED


def test_a_rank_whose_gpus_are_not_free_has_ended_all_the_same_and_says_so_at_once() -> None:
    bench = AgentBench()
    bench.released = False
    launch = running(bench, "run_for=3 exit_code=6")
    bench.run(3)
    held = bench.last(launch)
    assert (held.phase, held.exit_code, held.gpus_held) == (Phase.EXITED, 6, "gpu_releasing")
    assert held.age_s < 2.5, "counted from the end"
    assert bench.core.supervisor.gpus_in_use() == frozenset(launch.gpu_indexes)
    bench.run(30)
    held = bench.last(launch)
    assert (held.phase, held.gpus_held) == (Phase.EXITED, "gpu_not_released: GPU-0: 9 bytes used")
    bench.released = True
    bench.run(2)
    assert bench.last(launch).phase is Phase.EXITED
    assert (bench.last(launch).error, bench.last(launch).gpus_held) == ("", "")
    assert not bench.core.supervisor.gpus_in_use()


def test_a_restarted_agent_still_holds_gpus_back_that_are_not_free() -> None:
    bench = AgentBench()
    bench.released = False
    launch = running(bench, "run_for=3 exit_code=6")
    bench.run(3)
    assert bench.last(launch).gpus_held
    bench.restart()
    bench.connect()
    bench.run(3)
    held = bench.last(launch)
    assert (held.phase, held.exit_code, held.gpus_held) == (Phase.EXITED, 6, "gpu_releasing")
    bench.released = True
    bench.run(2)
    assert (bench.last(launch).phase, bench.last(launch).gpus_held) == (Phase.EXITED, "")


def test_gpus_that_are_free_at_once_are_told_with_the_end_in_one_report() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=3")
    bench.run(5)
    ends = [it for it in bench.reports(launch) if it.phase is Phase.EXITED]
    assert [it.gpus_held for it in ends] == [""]


def test_a_driver_that_hangs_hides_no_end() -> None:
    bench = AgentBench()
    bench.hangs_on = Purpose.RELEASE
    launch = running(bench, "run_for=3")
    bench.run(3)
    assert (bench.last(launch).phase, bench.last(launch).gpus_held) == (
        Phase.EXITED,
        "gpu_releasing",
    )
    bench.run(40)
    assert (bench.last(launch).phase, bench.last(launch).gpus_held) == (
        Phase.EXITED,
        "look_timeout",
    )


def test_a_file_system_that_hangs_does_not_keep_a_job_from_being_told() -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} saves_for=3")
    bench.answers_looks = False
    bench.order(a_stop(launch))
    bench.run(10)
    assert not bench.runs(launch)


def test_a_file_system_that_hangs_after_the_end_is_told_to_the_master() -> None:
    bench = AgentBench()
    launch = running(bench, "run_for=3")
    bench.answers_looks = False
    bench.run(40)
    assert (bench.last(launch).phase, bench.last(launch).error) == (Phase.STOPPING, "look_timeout")


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("preempt", "preempt"),
        ("pause", "user_pause"),
        ("drain", "maintenance"),
        ("time_limit", "time_limit"),
    ],
)
def test_the_notice_says_what_kind_of_stop_it_is(cause: str, kind: str) -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} ignores_signals=yes")
    bench.order(a_stop(launch, cause))
    bench.run(1)
    notice = bench.notice(launch)
    assert notice is not None
    assert notice.kind == kind


def test_a_rank_that_leaves_a_live_job_is_asked_to_save_and_killed_at_the_end_of_its_grace() -> (
    None
):
    bench = AgentBench()
    bench.connect()
    launch = a_launch(rank=1, does=f"{BEATING} ignores_signals=yes", live=True, sizes=(1, 2))
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, cause="resize", grace_s=30.0))
    bench.run(5)
    assert bench.notice(launch) is not None
    assert bench.last(launch).phase is Phase.STOPPING
    bench.run(30)
    report = bench.last(launch)
    assert (report.phase, report.signal) == (Phase.EXITED, signal.SIGKILL)


def test_who_is_to_leave_before_it_trains_is_told_only_after_the_start_up_grace() -> None:
    """A signal in torchrun's first seconds kills it raw."""
    bench = AgentBench()
    bench.connect()
    launch = a_launch(rank=1, does="run_for=1000 saves_for=1", live=True, sizes=(1, 2))
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, cause="resize", grace_s=30.0))
    bench.run(5)
    assert bench.notice(launch) is None
    bench.run(20)
    assert bench.notice(launch) is not None


def test_a_live_job_tells_where_its_rendezvous_is_as_long_as_it_runs() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does=BEATING, live=True, sizes=(1, 2))
    bench.prepare = lambda it: replace(a_preparation(it), ports=(29_600,))
    bench.order(launch)
    bench.run(2)
    assert (bench.last(launch).phase, bench.last(launch).ports) == (Phase.STARTED, (29_600,))
    bench.restart()
    bench.connect()
    bench.run(2)
    assert bench.last(launch).ports == (29_600,), "it was in the journal"


@pytest.mark.parametrize("cause", ["cancel", "time_limit"])
def test_a_job_of_slurm_that_is_over_is_continued_and_told_term_at_once(cause: str) -> None:
    bench = AgentBench()
    bench.connect()
    launch = replace(a_launch(does=STAYS), compat="slurm", preempt_signal="USR2")
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, cause, grace_s=30.0))
    bench.run(25)
    assert (bench.sent, bench.signals) == ([signal.SIGCONT], [signal.SIGTERM])
    assert bench.runs(launch)
    bench.run(10)
    assert bench.last(launch).ended_by == "stopped"


@pytest.mark.parametrize(("compat", "cause"), [("slurm", "preempt"), ("", "cancel")])
def test_who_goes_on_later_and_who_is_not_slurms_gets_its_own_signal(
    compat: str, cause: str
) -> None:
    bench = AgentBench()
    bench.connect()
    launch = replace(a_launch(does=STAYS), compat=compat, preempt_signal="USR2")
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, cause, grace_s=60.0))
    bench.run(5)
    assert (bench.sent, bench.signals) == ([], [signal.SIGUSR2])


def test_a_cancel_reaches_a_job_of_slurm_that_is_saving_already() -> None:
    bench = AgentBench()
    bench.connect()
    launch = replace(a_launch(does=STAYS), compat="slurm", preempt_signal="USR2")
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, grace_s=300.0))
    bench.run(5)
    bench.order(a_stop(launch, "cancel", grace_s=30.0))
    bench.run(2)
    assert bench.sent == [signal.SIGCONT]
    assert bench.signals == [signal.SIGUSR2, signal.SIGTERM]


@pytest.mark.parametrize(("knob", "told"), [("yes", True), ("no", False), ("", None)])
def test_the_master_hears_whether_the_program_bears_the_signal_of_its_notice(
    knob: str, told: bool | None
) -> None:
    bench = AgentBench()
    launch = running(bench, f"{BEATING} saves_for=3 saved_code=0 catches={knob}")
    bench.order(a_stop(launch))
    bench.run(10)
    report = bench.last(launch)
    assert (report.exit_code, report.catches) == (0, told)


def test_a_launcher_takes_signals_for_others_so_that_nothing_is_said() -> None:
    launchers: tuple[dict[str, Any], ...] = (
        {"compat": "slurm"}, {"launch_mode": "per-gpu"}, {"signal_to": "ranks"},
    )  # fmt: skip
    for more in launchers:
        bench = AgentBench()
        bench.connect()
        launch = replace(a_launch(does=f"{BEATING} saves_for=3 saved_code=0 catches=no"), **more)
        bench.order(launch)
        bench.run(2)
        bench.order(a_stop(launch))
        bench.run(10)
        assert bench.last(launch).catches is None


@pytest.mark.parametrize(("step", "done"), [(9, False), (10, True)])
def test_who_leaves_with_zero_at_its_last_step_has_finished(step: int, done: bool) -> None:
    bench = AgentBench()
    launch = running(
        bench, f'run_for=1000 saves_for=3 saved_code=0 beat={{"step":{step},"total":10}}'
    )
    bench.order(a_stop(launch))
    bench.run(10)
    assert bench.last(launch).done is done
