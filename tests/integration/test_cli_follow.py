"""Live views over broken lines: every line and every event once, an end, and Ctrl-C that
detaches.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from dlq.v1 import job_pb2
from dlq_cli.exit_codes import code_of_error
from dlq_client.line.connection import Connection
from dlq_client.watch import read_log, watch_events
from dlq_common.errors import DlqError, TryAgain, Unavailable
from support.cli_run import Dlq, Said
from support.fake_master import FakeMaster
from support.waiting import wait_until
from support.wire_jobs import a_job, an_attempt, an_event

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
LINES = b"".join(b"line %d\n" % number for number in range(60))


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.jobs = {"17": a_job(17, "running"), "18": a_job(18)}
    running.attempts["17"] = [an_attempt(17, 1)]
    running.events = [an_event(1, "attempt_running", 17, attempt=1)]
    yield running
    running.stop()


class Running:
    """A command in a thread of its own; `join` gives what it said."""

    def __init__(self, command: Callable[[], Said]) -> None:
        self._said: list[Said] = []
        self._thread = threading.Thread(target=lambda: self._said.append(command()), daemon=True)
        self._thread.start()

    def join(self) -> Said:
        self._thread.join(PATIENCE_S)
        assert self._said, "the command has not ended"
        return self._said[0]


def until_asked(master: FakeMaster, method: str, times: int = 1) -> None:
    wait_until(lambda: len(master.requests(method)) >= times, what=f"somebody asks {method}")


def end_job(
    master: FakeMaster, sequence: int, exit_code: int = 0, *, attempt_count: int = 1
) -> None:
    state = "failed" if exit_code else "completed"
    master.tell(
        an_event(sequence, f"job_{state}", 17),
        a_job(17, state, exit_code=exit_code, end_reason=state, attempt_count=attempt_count),
    )


def test_output_over_broken_streams_is_printed_once(master: FakeMaster) -> None:
    master.logs[("17", 1, 0)] = LINES
    master.cut_streams(7)
    lost: list[DlqError] = []
    with Connection(master.identity_of()) as connection:
        pieces = list(read_log(connection, "17", attempt=1, on_lost=lost.append))
    assert b"".join(piece.data for piece in pieces) == LINES
    assert [piece.missing_bytes for piece in pieces] == [0] * len(pieces)
    assert len(master.requests("ReadLogs")) == 8
    assert lost


def test_bytes_that_were_not_kept_are_counted(master: FakeMaster) -> None:
    master.logs[("17", 1, 0)] = LINES
    master.log_starts_at = 100
    with Connection(master.identity_of()) as connection:
        pieces = list(read_log(connection, "17", attempt=1))
    assert (pieces[0].offset, pieces[0].missing_bytes) == (100, 100)
    assert b"".join(piece.data for piece in pieces) == LINES[100:]


def test_events_over_broken_streams_are_told_once(master: FakeMaster) -> None:
    master.events = [an_event(number, "x", 17) for number in range(1, 9)]
    master.cut_streams(4)
    told: list[int] = []
    with Connection(master.identity_of()) as connection:
        for message in watch_events(connection, cursor=0):
            told.append(message.event.sequence)
            if len(told) == 8:
                break
    assert told == list(range(1, 9))
    assert [request.cursor for request in master.requests("WatchEvents")] == [0, 1, 2, 3, 4]


def test_a_watch_gives_up_after_a_bounded_time(master: FakeMaster) -> None:
    identity = master.identity_of()
    master.stop()
    with Connection(identity) as connection, pytest.raises(Unavailable):
        next(iter(watch_events(connection, outage_s=0.3)))
    with Connection(identity) as connection, pytest.raises(Unavailable):
        list(read_log(connection, "17", outage_s=0.3))


def test_a_watch_ends_at_its_time(master: FakeMaster) -> None:
    with Connection(master.identity_of()) as connection:
        until_s = connection.clock.boottime_s() + 0.2
        assert list(watch_events(connection, cursor=-1, until_s=until_s)) == []
        assert connection.clock.boottime_s() >= until_s


def test_a_refused_stream_is_not_tried_again(master: FakeMaster) -> None:
    master.refuse("WatchEvents", grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
    with Connection(master.identity_of()) as connection, pytest.raises(DlqError):
        next(iter(watch_events(connection)))
    assert len(master.requests("WatchEvents")) == 1


def test_a_stream_too_many_is_tried_again_until_another_has_ended(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.refuse(
        "WatchEvents",
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TRY_AGAIN",
        what="16 streams",
        hint="end one",
    )
    running = Running(lambda: dlq("wait", "17"))
    until_asked(master, "WatchEvents", 3)
    master.refuse_no_more("WatchEvents")
    until_asked(master, "WatchEvents", 4)
    end_job(master, 2)
    said = running.join()
    assert said.code == 0
    assert said.err.count("16 streams; still trying") == 1


def test_streams_that_stay_too_many_are_a_reason_to_try_again_later(master: FakeMaster) -> None:
    for method in ("WatchEvents", "ReadLogs"):
        master.refuse(method, grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN")
    with Connection(master.identity_of()) as connection:
        with pytest.raises(TryAgain):
            next(iter(watch_events(connection, outage_s=0.3)))
        with pytest.raises(TryAgain) as caught:
            list(read_log(connection, "17", outage_s=0.3))
    assert code_of_error(caught.value) == 75
    assert len(master.requests("WatchEvents")) > 1


def test_logs_follow_prints_the_tail_then_what_comes_until_the_job_ends(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.logs[("17", 1, 0)] = LINES
    master.log_ended = False
    master.jobs["17"].attempt_count = 1
    running = Running(lambda: dlq("logs", "-f", "-n", "2", "17"))
    # The first is the look at the tail, the second follows.
    until_asked(master, "ReadLogs", 2)
    master.cut_streams(2)
    master.write_log(("17", 1, 0), b"more\n")
    master.write_log(("17", 1, 0), b"last, without a newline", ended=True)
    end_job(master, 2)
    said = running.join()
    assert said.code == 0
    assert said.out == "line 58\nline 59\nmore\nlast, without a newline"


def test_logs_follow_goes_on_with_the_next_attempt(master: FakeMaster, dlq: Dlq) -> None:
    master.logs = {("17", 1, 0): b"one\n", ("17", 2, 0): b"two\n"}
    running = Running(lambda: dlq("logs", "-f", "17"))
    until_asked(master, "WatchEvents")
    master.attempts["17"].append(an_attempt(17, 2))
    master.tell(an_event(2, "attempt_running", 17), a_job(17, "running", attempt_count=2))
    end_job(master, 3, attempt_count=2)
    said = running.join()
    assert (said.code, said.out) == (0, "one\ntwo\n")
    assert "job 17 goes on as attempt 2" in said.err


def test_logs_of_all_ranks_come_as_whole_lines_with_the_rank_before_them(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.logs = {("17", 1, 0): LINES, ("17", 1, 1): LINES}
    end_job(master, 2)
    said = dlq("logs", "-f", "--rank", "all", "-n", "all", "17")
    lines = said.out.splitlines()
    for rank in (0, 1):
        own = [line.removeprefix(f"{rank}: ") for line in lines if line.startswith(f"{rank}: ")]
        assert "\n".join(own) + "\n" == LINES.decode()
    assert len(lines) == 120


def test_logs_of_a_job_that_ends_without_an_attempt_are_empty(master: FakeMaster, dlq: Dlq) -> None:
    running = Running(lambda: dlq("logs", "-f", "18"))
    until_asked(master, "WatchEvents")
    master.tell(an_event(2, "job_cancelled", 18), a_job(18, "cancelled"))
    said = running.join()
    assert (said.code, said.out) == (0, "")
    assert "job 18 is queued; its output follows when it runs" in said.err


@pytest.mark.parametrize("flags", [(), ("--kill",)])
def test_cancel_without_wait_returns_while_processes_still_run(
    flags: tuple[str, ...], master: FakeMaster, dlq: Dlq
) -> None:
    said = dlq("cancel", *flags, "17")
    assert (said.code, said.out) == (0, "job 17: is ending (running)\n")
    assert master.requests("WatchEvents") == []


@pytest.mark.parametrize("flags", [(), ("--kill",)])
def test_cancel_with_wait_returns_when_nothing_runs_any_more(
    flags: tuple[str, ...], master: FakeMaster, dlq: Dlq
) -> None:
    running = Running(lambda: dlq("cancel", *flags, "--wait", "17", "18"))
    until_asked(master, "WatchEvents")
    master.tell(an_event(2, "attempt_cancelled", 17), a_job(17, "cancelled"))
    said = running.join()
    assert (said.code, said.err) == (0, "")
    assert said.out == "job 17: cancelled\njob 18: cancelled\n"
    assert [ask.kill for ask in master.requests("CancelJobs")] == [bool(flags)]


def test_cancel_that_waits_in_vain_says_that_the_order_stands(master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("cancel", "--wait", "--timeout", "1s", "17", "--json")
    assert said.code == 124
    assert "the order stands, and something still runs: 17" in said.err
    assert json.loads(said.out)["jobs"][0]["attempt_state"] == "running"


def test_a_refused_cancel_among_several_keeps_its_exit_code_with_wait(
    master: FakeMaster, dlq: Dlq
) -> None:
    said = dlq("cancel", "--wait", "99", "18")
    assert (said.code, said.out) == (3, "job 18: cancelled\n")
    assert dlq("cancel", "--timeout", "1s", "18").code == 2


@pytest.mark.parametrize("exit_code", [0, 3])
def test_wait_exits_as_the_job_does(exit_code: int, master: FakeMaster, dlq: Dlq) -> None:
    running = Running(lambda: dlq("wait", "17"))
    until_asked(master, "WatchEvents")
    end_job(master, 2, exit_code)
    assert running.join().code == exit_code


def test_wait_exits_with_128_and_the_signal(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17, "failed", exit_signal=9)
    assert dlq("wait", "17").code == 137


def test_wait_for_any_ends_with_the_first(master: FakeMaster, dlq: Dlq) -> None:
    running = Running(lambda: dlq("wait", "--any", "17", "18"))
    until_asked(master, "WatchEvents")
    end_job(master, 2)
    said = running.join()
    assert (said.code, said.out) == (0, "17 completed\n")


def test_wait_for_running_and_its_timeout(master: FakeMaster, dlq: Dlq) -> None:
    assert dlq("wait", "--for", "running", "17").code == 0
    said = dlq("wait", "--for", "running", "17", "18", "--timeout", "1s")
    assert said.code == 124
    assert "not there yet: 18" in said.err


def test_status_watch_tells_each_change_once_and_ends_with_the_job(
    master: FakeMaster, dlq: Dlq
) -> None:
    running = Running(lambda: dlq("status", "-w", "-o", "id,state", "17"))
    until_asked(master, "WatchEvents")
    master.tell(an_event(2, "beat", 17), a_job(17, "running"))
    master.tell(an_event(3, "attempt_pausing", 17), a_job(17, "pausing"))
    end_job(master, 4)
    said = running.join()
    assert said.code == 0
    lines = [line.split() for line in said.out.splitlines()]
    # Changes that come together may be told as one: the watch shows the job as it is by then.
    assert lines[:2] == [["JOB_ID", "STATE"], ["17", "running"]]
    assert lines[-1] == ["17", "completed"]
    assert len(lines) == len({tuple(line) for line in lines})


def test_status_watch_as_json_lines(master: FakeMaster, dlq: Dlq) -> None:
    running = Running(lambda: dlq("status", "-w", "--jsonl", "17"))
    until_asked(master, "WatchEvents")
    end_job(master, 2)
    states = [json.loads(line)["job"]["state"] for line in running.join().out.splitlines()]
    assert states == ["running", "completed"]


def test_submit_wait_exits_as_the_job_does_and_follow_prints_its_output(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.jobs["17"] = a_job(17, "failed", exit_code=3, attempt_count=1)
    master.logs[("17", 1, 0)] = LINES
    master.jobs["18"] = a_job(18, "completed", exit_code=0, attempt_count=1)
    master.logs[("18", 1, 0)] = LINES
    assert dlq("submit", "--parsable", "-W", "--", "true").code == 3
    said = dlq("submit", "--parsable", "-f", "--", "true")
    assert (said.code, said.out) == (0, "18\n" + LINES.decode())


def test_waiting_for_a_job_on_hold_says_so_once_and_goes_on(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17, "held", hold_kind=job_pb2.HOLD_KIND_USER)
    master.reasons["17"] = [job_pb2.WaitReason(code="held_user", detail="held by bob: disk")]
    running = Running(lambda: dlq("wait", "17"))
    until_asked(master, "WatchEvents")
    master.tell(an_event(2, "beat", 17), master.jobs["17"])
    end_job(master, 3)
    said = running.join()
    assert said.code == 0
    assert said.err == "dlq: job 17 is on hold: held by bob: disk\n"


@pytest.mark.parametrize("line", ["wait 17", "submit -W -- true", "submit -f -- true"])
def test_a_job_that_the_master_holds_as_poison_is_not_waited_for(
    line: str, master: FakeMaster, dlq: Dlq
) -> None:
    master.jobs["17"] = a_job(17, "held", hold_kind=job_pb2.HOLD_KIND_POISON, attempt_count=1)
    master.reasons["17"] = [job_pb2.WaitReason(code="poison", detail="held by the master: 3 lost")]
    attempt = an_attempt(17, 1)
    attempt.ranks[0].error = "no such user"
    master.attempts["17"] = [attempt]
    master.logs[("17", 1, 0)] = b""
    said = dlq(*line.split())
    assert said.code == 1
    assert said.err.splitlines() == [
        "dlq: job 17 is on hold: held by the master: 3 lost; last cause: no such user (gpu01)"
    ]


def test_submit_tells_the_place_of_a_job_that_waits_also_out_of_a_terminal(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.jobs = {}
    master.reasons["17"] = [job_pb2.WaitReason(code="no_gpus", detail="no GPU is free")]
    said = dlq("submit", "--", "true")
    assert (said.code, said.out) == (0, "Submitted batch job 17\n")
    assert said.err == "dlq: job 17 waits: no GPU is free\ndlq: 2 jobs are ahead of it\n"
    master.submitted = {}
    assert "ahead" not in dlq("submit", "--parsable", "--", "true").err
    master.submitted = {}
    master.refuse("ExplainJob", grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")
    assert dlq("submit", "--", "true", patience_s=0.1).code == 0, "it is queued all the same"


def test_events_watch_tells_all_of_a_job_once_and_ends_with_it(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.cut_streams(1)
    running = Running(lambda: dlq("events", "-w", "--jsonl", "17"))
    until_asked(master, "WatchEvents")
    master.jobs["17"] = a_job(17, "completed", exit_code=0)
    # The watch shows a job that has ended with the first of these already.
    master.events += [an_event(2, "attempt_succeeded", 17), an_event(3, "job_completed", 17)]
    told = [json.loads(line)["event"]["sequence"] for line in running.join().out.splitlines()]
    assert told == [1, 2, 3]


def test_events_are_chosen_by_the_master_and_the_watch_of_several_jobs_ends_with_the_last(
    master: FakeMaster, dlq: Dlq
) -> None:
    words = ("-t", "promise_*,job_completed", "--node", "gpu[01-02]", "-S", "2h")
    running = Running(lambda: dlq("events", "-w", "--jsonl", *words, "17", "18"))
    until_asked(master, "WatchEvents")
    master.jobs["17"] = a_job(17, "completed", exit_code=0)
    master.events.append(an_event(2, "job_completed", 17))
    master.jobs["18"] = a_job(18, "completed", exit_code=0)
    master.events.append(an_event(3, "job_completed", 18))
    told = [json.loads(line)["event"]["sequence"] for line in running.join().out.splitlines()]
    assert told[-2:] == [2, 3]
    (listed, *_), (watched, *_) = master.requests("ListEvents"), master.requests("WatchEvents")
    assert listed.filter == watched.filter
    assert (list(listed.filter.kinds), list(listed.filter.node_ids)) == (
        ["promise_*", "job_completed"],
        ["gpu01", "gpu02"],
    )
    assert listed.filter.HasField("since_time")
    assert list(listed.job_ids) == list(watched.job_ids) == ["17", "18"]


def test_events_that_do_not_exist_are_told_so(master: FakeMaster, dlq: Dlq) -> None:
    master.events.clear()
    said = dlq("events", "-t", "promise_mode")
    assert (said.code, said.out, "there are no such events" in said.err) == (0, "", True)
    assert dlq("events", "-t", ",").code == 2
    assert "is not a time" in dlq("events", "-S", "soon").err
    assert dlq("events", "--node", "gpu[1-").code == 2


def test_too_many_ranks_are_not_followed_at_once(master: FakeMaster, dlq: Dlq) -> None:
    attempt = master.attempts["17"][0]
    for rank in range(2, 14):
        attempt.ranks.add(node_rank=rank, node_id=f"gpu{rank}", phase="started")
    master.jobs["17"].attempt_count = 1
    said = dlq("logs", "-f", "--rank", "all", "17")
    assert (said.code, "12 at most" in said.err) == (2, True)
