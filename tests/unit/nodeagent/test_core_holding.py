"""A master that lets a node's jobs hold out longer, for an absence that was announced."""

from dlq_nodeagent.model.messages import Heartbeat, RankReport
from support.agent_bench import AgentBench, a_launch

HOLD_S = 3600.0
LONGER_S = 7200.0


def running(bench: AgentBench, *jobs: int) -> None:
    """These jobs run under a connected agent."""
    bench.connect()
    for job in jobs:
        bench.order(a_launch(job, does="run_for=100000", hold_s=HOLD_S))
    bench.run(1)


def announced(bench: AgentBench, extension_s: float, revision: int) -> None:
    """The master's word from now on; it comes with the answer to the next heartbeat."""
    bench.hold_extension_s, bench.hold_revision = extension_s, revision
    bench.run(11)


def holds(bench: AgentBench) -> list[float]:
    """What the shims count with."""
    return [attempt.hold_s for attempt in bench.host.attempts.values()]


def said(bench: AgentBench) -> int:
    """The revision in the latest heartbeat."""
    return bench.said(Heartbeat)[-1].hold_revision


def test_every_shim_is_told_and_the_master_hears_it_at_once() -> None:
    bench = AgentBench()
    running(bench, 1, 2)
    announced(bench, LONGER_S, 1)
    assert holds(bench) == [HOLD_S + LONGER_S] * 2
    told = next(beat for beat in bench.said(Heartbeat) if beat.hold_revision)
    assert told.hold_revision == 1
    assert bench.said(Heartbeat)[told.sequence - 2].hold_revision == 0


def test_jobs_outlive_an_absence_longer_than_their_hold_and_no_longer_than_both() -> None:
    bench = AgentBench()
    running(bench, 1)
    announced(bench, LONGER_S, 1)
    bench.clock.advance(HOLD_S + LONGER_S - 400)  # its notice comes 300 s before the end
    assert bench.runs(a_launch(1))
    bench.clock.advance(401)
    assert not bench.runs(a_launch(1))


def test_it_is_not_in_force_while_one_shim_has_not_heard() -> None:
    bench = AgentBench()
    running(bench, 1)
    bench.deaf = True
    announced(bench, LONGER_S, 1)
    assert (holds(bench), said(bench)) == ([HOLD_S], 0)
    bench.deaf = False
    bench.run(1)
    assert (holds(bench), said(bench)) == ([HOLD_S + LONGER_S], 1)


def test_a_rank_that_starts_meanwhile_holds_out_as_long() -> None:
    bench = AgentBench()
    running(bench, 1)
    announced(bench, LONGER_S, 1)
    bench.order(a_launch(2, hold_s=120.0))
    bench.run(1)
    assert holds(bench) == [HOLD_S + LONGER_S, 120.0 + LONGER_S]


def test_after_a_restart_the_shims_are_told_what_holds_now() -> None:
    bench = AgentBench()
    running(bench, 1)
    announced(bench, LONGER_S, 1)
    bench.restart(down_s=1800)
    bench.connect()
    bench.run(1)
    assert holds(bench) == [HOLD_S + LONGER_S]

    bench.hold_extension_s, bench.hold_revision = 0.0, 2
    bench.restart(down_s=1800)
    assert holds(bench) == [HOLD_S + LONGER_S], "nobody has spoken to the new agent yet"
    bench.connect()
    bench.run(1)
    assert (holds(bench), said(bench)) == ([HOLD_S], 2)


def test_the_end_is_confirmed_only_after_the_shims_have_heard_of_it() -> None:
    bench = AgentBench()
    running(bench, 1)
    announced(bench, LONGER_S, 1)
    bench.deaf = True
    announced(bench, 0.0, 2)
    assert (holds(bench), said(bench)) == ([HOLD_S + LONGER_S], 0)
    bench.deaf = False
    bench.run(11)
    assert (holds(bench), said(bench)) == ([HOLD_S], 2)


def test_a_rank_of_which_nothing_is_known_keeps_the_hold_it_has() -> None:
    bench = AgentBench()
    launch = a_launch(1, hold_s=120.0)
    bench.connect()
    bench.order(launch)
    bench.run(1)
    bench.journal.drop_rank(launch.key)
    bench.restart()
    bench.connect()
    announced(bench, LONGER_S, 1)
    assert holds(bench) == [120.0]


def left_alone(does: str, *, saves_s: float) -> RankReport:
    """How a job ended while there was no master; it commits `saves_s` before the end of its hold,
    and its notice comes 300 s before that."""
    bench = AgentBench()
    launch = a_launch(1, does=does, hold_s=HOLD_S)
    bench.connect()
    bench.order(launch)
    bench.run(1)
    bench.cut()
    bench.clock.advance(HOLD_S - saves_s)
    bench.commit(5)
    bench.clock.advance(saves_s)
    bench.connect()
    bench.run(1)
    return bench.last(launch)


def test_what_a_job_does_after_its_shim_told_it_to_leave_is_reported_as_such() -> None:
    report = left_alone("run_for=100000 saves_for=100", saves_s=250.0)
    assert (report.exit_code, report.ended_by, report.noticed) == (99, "exited", "hold_expired")
    assert report.checkpoint is not None
    assert report.checkpoint.after_notice


def test_what_was_saved_before_the_shim_told_it_to_leave_answers_no_notice() -> None:
    report = left_alone("run_for=100000", saves_s=350.0)
    assert (report.signal, report.ended_by, report.noticed) == (10, "exited", "hold_expired")
    assert report.checkpoint is not None
    assert not report.checkpoint.after_notice


def test_a_job_that_ends_by_itself_while_there_is_no_master_was_told_nothing() -> None:
    report = left_alone("run_for=60", saves_s=350.0)
    assert (report.exit_code, report.noticed) == (0, "")
    assert report.age_s > HOLD_S - 70.0
