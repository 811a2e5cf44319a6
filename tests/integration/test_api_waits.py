"""`import dlq` against a master that a test steers: submit once, wait, follow, and every fault."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

import grpc
import pytest

import dlq
from dlq.v1 import job_pb2
from dlq_api import job as job_module
from dlq_api.ends import is_over
from dlq_api.output import lines_of
from dlq_common.text.wire import to_timestamp
from support.fake_master import FakeMaster
from support.ports import free_ports
from support.waiting import wait_until
from support.wire_jobs import EPOCH_S, a_job, an_attempt, an_event

pytestmark = pytest.mark.integration

LINES = [f"line {number} é" for number in range(40)]
OUTPUT = "\n".join(LINES).encode()
PATIENCE_S = 60.0


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.jobs = {"17": a_job(17, "running"), "18": a_job(18)}
    running.attempts["17"] = [an_attempt(17, 1)]
    running.events = [an_event(1, "attempt_running", 17, attempt=1)]
    yield running
    running.stop()


@pytest.fixture
def cluster(master: FakeMaster, tmp_path: Path) -> Iterator[dlq.Cluster]:
    with dlq.connect(master.home(tmp_path / "home"), patience=5.0) as connected:
        yield connected


def end_job(master: FakeMaster, job_id: int, state: str = "completed", **fields: object) -> None:
    sequence = master.events[-1].sequence + 1
    master.tell(
        an_event(sequence, f"job_{state}", job_id), a_job(job_id, state, end_reason=state, **fields)
    )


def until_watched(master: FakeMaster, times: int = 1) -> None:
    wait_until(lambda: len(master.requests("WatchEvents")) >= times, what="somebody watches")


# --- submit ---------------------------------------------------------------------------------------


def test_a_lost_answer_makes_one_job(master: FakeMaster, cluster: dlq.Cluster) -> None:
    master.lose_replies("SubmitJob", 2)
    job = cluster.submit(["true"], gpus=2, request_id="mine")
    again = cluster.submit(["true"], gpus=2, request_id="mine")
    assert job == again
    assert {request.request_id for request in master.requests("SubmitJob")} == {"mine"}
    assert len(master.submitted) == 1


def test_after_unavailable_the_error_has_the_key_to_ask_again(
    master: FakeMaster, tmp_path: Path
) -> None:
    with dlq.connect(master.home(tmp_path / "home"), patience=0.2) as cluster:
        master.lose_replies("SubmitJob", 100)
        with pytest.raises(dlq.Unavailable) as lost:
            cluster.submit(["true"])
        master.lose_replies("SubmitJob", 0)
        job = cluster.submit(["true"], request_id=lost.value.metadata["request_id"])
    assert list(master.submitted.values()) == [job.id]


def test_a_bad_word_sends_nothing(master: FakeMaster, cluster: dlq.Cluster) -> None:
    with pytest.raises(dlq.InvalidRequest) as refused:
        cluster.submit(["true"], gpus=-1)
    assert refused.value.field == "gpus"
    with pytest.raises(dlq.InvalidRequest, match="use submit_array"):
        cluster.submit(["true"], array="0-9")
    with pytest.raises(dlq.InvalidRequest, match="use submit"):
        cluster.submit_array(["true"])
    assert master.requests("SubmitJob") == []


def test_with_several_masters_the_one_that_answers_is_asked(
    master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dead,) = free_ports(1)
    monkeypatch.setenv("DLQ_MASTERS", f"127.0.0.1:{dead},127.0.0.1:{master.port}")
    with dlq.connect(master.home(tmp_path / "home")) as cluster:
        job = cluster.submit(["true"])
        future = job.future()
        until_watched(master)
        end_job(master, int(job.id))
        assert future.result(PATIENCE_S).job_id == job.id


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    with pytest.raises(dlq.Unauthenticated, match="holds no valid identity"):
        dlq.connect(tmp_path)


def test_a_user_without_rights_gets_a_typed_error(master: FakeMaster, cluster: dlq.Cluster) -> None:
    job = cluster.job(17)
    denied = (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
    for method in ("CancelJob", "SubmitJob", "WatchEvents", "ReadLogs"):
        master.refuse(method, *denied, what=f"{method} is not for alice")
    for call in (
        job.cancel,
        lambda: cluster.submit(["true"]),
        job.wait,
        lambda: list(job.logs()),
    ):
        with pytest.raises(dlq.PermissionDenied, match="is not for alice"):
            call()
    with pytest.raises(dlq.NotFound):
        cluster.job(99)
    with pytest.raises(dlq.NotFound):
        dlq.Job(cluster.line, a_job(99)).wait()


# --- look -----------------------------------------------------------------------------------------


def test_what_the_master_tells_is_typed(master: FakeMaster, cluster: dlq.Cluster) -> None:
    promised = a_job(18)
    promised.promise.state = "guaranteed"
    promised.promise.detail = "it ends in time"
    promised.promise.deadlines.add(due_time=to_timestamp(EPOCH_S), reward=100.0)
    promised.promise.slack_duration.seconds = -60
    master.jobs["18"] = promised
    master.reasons["18"] = [
        job_pb2.WaitReason(code="resources", detail="8 <GPUs> are missing", blocking_job_ids=["17"])
    ]
    job = cluster.job(18)
    promise, why = job.promise, job.why()
    assert promise is not None
    assert promise.guaranteed
    assert promise.slack is not None
    assert promise.slack.total_seconds() == -60
    assert [each.timestamp() for each in promise.deadlines] == [EPOCH_S]
    assert str(promise) == "guaranteed: it ends in time"
    assert (why.reasons[0].code, why.reasons[0].blocking_jobs, why.jobs_ahead) == (
        "resources", ("17",), 2,
    )  # fmt: skip
    assert str(why) == "8 <GPUs> are missing"
    assert str(job.eta) == "no forecast: nobody has looked yet"
    master.estimate.missing = ""
    master.estimate.start.likely_time.CopyFrom(to_timestamp(EPOCH_S))
    start = job.eta.start
    assert start is not None
    assert start.likely is not None
    assert start.likely.timestamp() == EPOCH_S
    assert cluster.job(17).promise is None
    assert (job.state, job.facts["user"]) == ("queued", "alice")
    assert [each.id for each in cluster.jobs(states="running")] == ["17"]


def test_a_notebook_shows_no_text_of_a_job_as_markup(
    master: FakeMaster, cluster: dlq.Cluster
) -> None:
    master.jobs["18"].name = "<script>alert(1)</script>"
    master.jobs["18"].promise.detail = "<b>"
    master.jobs["18"].promise.deadlines.add()
    master.reasons["18"] = [job_pb2.WaitReason(code="<i>", detail="<img src=x>")]
    job = cluster.job(18)
    drawn: list[Any] = [job, cluster.jobs(), job.why(), job.promise, job.eta]
    for each in drawn:
        html = each._repr_html_()
        assert "<table>" in html
        for word in ("<script", "<b>", "<i>", "<img"):
            assert word not in html


# --- wait -----------------------------------------------------------------------------------------


def test_a_wait_outlasts_cut_streams(master: FakeMaster, cluster: dlq.Cluster) -> None:
    master.cut_streams(3)
    job = cluster.job(17)
    future = job.future()
    for number in range(4):
        until_watched(master, number + 1)
        sequence = master.events[-1].sequence + 1
        master.tell(an_event(sequence, "attempt_running", 17), master.jobs["17"])
    end_job(master, 17, exit_code=0)
    assert future.result(PATIENCE_S).job_id == "17"
    assert job.result(PATIENCE_S) == 0


def test_a_wait_may_end_when_the_job_runs(master: FakeMaster, cluster: dlq.Cluster) -> None:
    assert cluster.job(17).wait(until="running").id == "17"
    future = cluster.job(18).future(until="running")
    until_watched(master)
    master.tell(an_event(2, "attempt_running", 18), a_job(18, "running"))
    assert future.result(PATIENCE_S).node_ids


def test_a_timeout_and_ctrl_c_leave_the_job_and_say_so(
    master: FakeMaster, cluster: dlq.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cluster.job(17)
    with pytest.raises(dlq.WaitTimeout, match="job 17 goes on"):
        job.wait(0.01)
    with pytest.raises(TimeoutError):
        job.result(0.01)

    class Interrupted(Future[job_pb2.Job]):
        def result(self, timeout: float | None = None) -> job_pb2.Job:
            raise KeyboardInterrupt

    monkeypatch.setattr(job_module.Job, "future", lambda self, until: Interrupted())
    with pytest.raises(KeyboardInterrupt) as stopped:
        job.wait()
    assert stopped.value.__notes__ == ["job 17 goes on; dlq cancel 17 ends it"]
    assert master.requests("CancelJob") == []


@pytest.mark.parametrize(
    ("state", "kind"),
    [("failed", dlq.JobFailed), ("cancelled", dlq.JobCancelled), ("timed_out", dlq.JobTimedOut)],
)
def test_an_end_without_a_result_is_a_typed_error(
    master: FakeMaster, cluster: dlq.Cluster, state: str, kind: type[dlq.JobFailed]
) -> None:
    attempt = an_attempt(17, 1, "failed")
    attempt.first_failed_rank = 1
    attempt.ranks[1].last_lines.extend(["Traceback", "ValueError: no"])
    attempt.ranks[1].exit_code = 3
    master.attempts["17"] = [attempt]
    end_job(master, 17, state, exit_code=3)
    with pytest.raises(kind) as failed:
        cluster.job(17).result()
    assert type(failed.value) is kind
    assert (failed.value.rank, failed.value.exit_code, failed.value.reason_word) == (1, 3, state)
    assert failed.value.lines == ("Traceback", "ValueError: no")
    assert "ValueError: no" in str(failed.value)


def test_a_job_that_the_master_holds_for_its_starts_is_an_end(
    master: FakeMaster, cluster: dlq.Cluster
) -> None:
    master.jobs["18"] = a_job(18, "held")
    master.jobs["18"].hold_kind = job_pb2.HOLD_KIND_POISON
    with pytest.raises(dlq.JobPoisoned, match="is held by the master"):
        cluster.job(18).result()


def test_a_master_that_stays_away_ends_a_wait_with_an_error(
    master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dlq.connect(master.home(tmp_path / "home"), patience=0.2) as cluster:
        monkeypatch.setattr(cluster.line.watch, "_outage_s", 0.2)
        future = cluster.job(17).future()
        until_watched(master)
        master.stop()
        with pytest.raises(dlq.Unavailable):
            future.result(PATIENCE_S)


def test_closing_ends_waits_with_an_error(master: FakeMaster, cluster: dlq.Cluster) -> None:
    job = cluster.job(17)
    future = job.future()
    until_watched(master)
    cluster.close()
    with pytest.raises(dlq.Unavailable, match="the jobs go on"):
        future.result(PATIENCE_S)
    with pytest.raises(dlq.Unavailable, match="the jobs go on"):
        job.wait()


def test_a_thousand_futures_share_one_stream(master: FakeMaster, cluster: dlq.Cluster) -> None:
    numbers = range(1000, 2000)
    master.jobs |= {str(number): a_job(number, "running") for number in numbers}
    futures = cluster.line.watch.until([str(number) for number in numbers], is_over)
    until_watched(master)
    threads = threading.active_count()
    for number in numbers:
        end_job(master, number)
    found = [future.result().job_id for future in as_completed(futures.values(), PATIENCE_S)]
    assert sorted(map(int, found)) == list(numbers)
    assert len(master.requests("WatchEvents")) == 1
    assert threading.active_count() <= threads
    assert cluster.line.watch._waiting == {}


def test_a_new_waiter_joins_the_stream_that_is_there(
    master: FakeMaster, cluster: dlq.Cluster
) -> None:
    first = cluster.job(17).future()
    until_watched(master)
    end_job(master, 18)
    second = cluster.job(18).future()  # its end was told before
    assert second.result(PATIENCE_S).job_id == "18"
    assert not first.done()
    assert len(master.requests("WatchEvents")) == 1


def test_a_program_that_ends_while_jobs_run_is_quiet(master: FakeMaster, tmp_path: Path) -> None:
    program = """if True:
        import dlq, sys, threading
        cluster = dlq.connect(sys.argv[1])
        executor = cluster.executor(gpus=1, directory=sys.argv[2])
        future = executor.submit(print, 1)
        waits = cluster.job(17).future()
        follower = cluster.job(17).logs(follow=True)
        assert next(follower) == "one"
        threading.Thread(target=lambda: list(follower), daemon=True).start()
        print(future.job.id, waits.done())
    """
    master.logs[("17", 1, 0)] = b"one\n"
    master.log_ended = False
    home = master.home(tmp_path / "home")
    done = subprocess.run(
        [sys.executable, "-c", program, home, tmp_path / "calls"],
        capture_output=True,
        text=True,
        timeout=60.0,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("17 False\n", "", 0)
    assert master.requests("CancelJob") == []


# --- output ---------------------------------------------------------------------------------------


def test_output_over_cut_streams_comes_once_and_line_by_line(
    master: FakeMaster, cluster: dlq.Cluster
) -> None:
    master.logs[("17", 1, 0)] = OUTPUT
    master.cut_streams(5)
    assert list(cluster.job(17).logs()) == LINES


def test_following_goes_over_attempts_to_the_end_of_the_job(
    master: FakeMaster, cluster: dlq.Cluster
) -> None:
    master.logs[("17", 1, 0)] = b"one\n"
    master.logs[("17", 2, 0)] = b"two\n"
    lines = cluster.job(17).logs(follow=True)
    assert next(lines) == "one"
    master.attempts["17"].append(an_attempt(17, 2))
    end_job(master, 17, attempt_count=2)
    assert list(lines) == ["two"]


def test_following_never_ends_quietly(master: FakeMaster, cluster: dlq.Cluster) -> None:
    master.logs[("17", 1, 0)] = b"one\n"
    master.log_ended = False
    lines = cluster.job(17).logs(follow=True)
    assert next(lines) == "one"
    cluster.close()
    with pytest.raises(dlq.Unavailable, match="the jobs go on"):
        list(lines)


def test_bytes_that_were_not_kept_are_told(master: FakeMaster, cluster: dlq.Cluster) -> None:
    master.logs[("17", 1, 0)] = OUTPUT
    master.log_starts_at = 100
    with pytest.warns(dlq.OutputMissing, match="100 bytes"):
        list(cluster.job(17).logs())


def test_a_job_that_has_not_started_has_no_output(cluster: dlq.Cluster) -> None:
    with pytest.raises(dlq.IllegalTransition, match="has not started yet"):
        list(cluster.job(18).logs())
    line = cluster.line
    with pytest.raises(dlq.NotFound, match="has no attempt 7"):
        list(lines_of(line.connection, "17", line.say, follow=False, rank=0, attempt=7))
