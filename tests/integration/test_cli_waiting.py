"""The words of `dlq run` while its job waits, and the queue of interactive jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dlq.v1 import forecast_service_pb2 as forecasts
from dlq.v1 import job_pb2, queue_pb2
from dlq_cli.interactive import waiting
from dlq_cli.output.render import OutputLook
from dlq_client.line.connection import Connection
from dlq_common.clock import SteadyClock
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq, Said
from support.fake_master import FakeMaster
from support.waiting import wait_until
from support.wire_jobs import EPOCH_S, a_job, an_attempt, an_event

pytestmark = pytest.mark.integration


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setattr(waiting, "FIRST_S", 0.0)
    monkeypatch.setattr(waiting, "EVERY_S", 0.05)
    running = FakeMaster()
    yield running
    running.stop()


def desk(gpus_per_job: int = 2) -> list[queue_pb2.Queue]:
    limits = queue_pb2.InteractiveLimits(
        default_time_limit_duration=to_duration(3600.0),
        max_time_limit_duration=to_duration(7200.0),
        gpus_per_job_count=gpus_per_job,
    )
    return [queue_pb2.Queue(name="desk", interactive=limits), queue_pb2.Queue(name="default")]


def starts_in(seconds: float) -> forecasts.EstimateJobResponse:
    answer = forecasts.EstimateJobResponse(estimate_time=to_timestamp(EPOCH_S))
    for name in ("earliest_time", "likely_time", "latest_time"):
        getattr(answer.start, name).CopyFrom(to_timestamp(EPOCH_S + seconds))
    return answer


def estimated(master: FakeMaster, soon: Callable[[job_pb2.JobSpec], bool]) -> None:
    """Forecasts: the job starts in an hour, and specs at once where `soon` says so."""
    master.estimate_of = lambda asked: starts_in(
        0.0 if asked.HasField("spec") and soon(asked.spec) else 3600.0
    )


def ends(master: FakeMaster, job_id: str = "17") -> None:
    """The job runs, and has ended."""
    job = master.jobs[job_id]
    job.state, job.attempt_count, job.exit_code = job_pb2.JOB_STATE_COMPLETED, 1, 0
    master.attempts[job_id] = [an_attempt(int(job_id), 1)]
    number = len(master.events) + 1
    master.tell(an_event(number, "job_completed", int(job_id), attempt=1), job)


def after(master: FakeMaster, *words: str, asked: int, dlq: Dlq) -> Said:
    """What a command has said when its job ends after so many forecasts."""

    def end() -> None:
        wait_until(lambda: "17" in master.jobs, what="the job")
        try:
            wait_until(lambda: len(master.requests("EstimateJob")) >= asked, what="forecasts")
        finally:
            ends(master)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    return dlq(*words)  # here: it handles signals


def test_a_waiting_job_tells_its_place_its_start_and_what_would_start_now(
    master: FakeMaster, dlq: Dlq
) -> None:
    estimated(master, lambda spec: spec.resources.gpu_count <= 2)
    said = after(master, "run", "-G", "8", "--", "true", asked=5, dlq=dlq)
    (line,) = [one for one in said.err.splitlines() if "would start now" in one]
    assert line.startswith("dlq: job 17 waits: ")
    assert "starts ≈ " in line
    assert line.endswith("--gpus 2 would start now")
    assert said.code == 0


def test_on_a_terminal_the_offer_is_a_line_of_its_own_that_is_not_cut_off() -> None:
    news = waiting.News("17", 3, "8 GPUs are held by job 12", starts_in(3600.0), ("--gpus 2",))
    terminal = OutputLook(tty=True, color=False, now_s=EPOCH_S)
    assert news.words(terminal).endswith("8 GPUs are held by job 12")
    assert news.offer == "--gpus 2 would start now"


def test_it_may_be_another_type_or_the_queue_of_interactive_jobs(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.queues = desk()
    estimated(master, lambda spec: not spec.resources.gpu_type or spec.queue == "desk")
    words = ("run", "-G", "a100:1", "-p", "default", "--", "true")
    said = after(master, *words, asked=3, dlq=dlq)
    assert "GPUs of any type, -p desk would start now" in said.err


def test_with_json_each_piece_of_news_is_an_object_on_stderr(master: FakeMaster, dlq: Dlq) -> None:
    estimated(master, lambda spec: spec.resources.gpu_count == 1)
    said = after(master, "run", "--json", "-G", "2", "--", "true", asked=6, dlq=dlq)
    told = [json.loads(one) for one in said.err.splitlines()]  # each line is an object
    assert "job 17 is queued" in [one.get("message") for one in told]
    (news,) = [one for one in told if "waiting" in one]
    assert news["waiting"]["job_id"] == "17"
    assert news["waiting"]["would_start_now"] == ["--gpus 1"]
    assert news["waiting"]["start"]["likely_time"]


def test_with_json_an_error_is_an_object_on_stderr(master: FakeMaster, dlq: Dlq) -> None:
    master.refuse_once(
        "SubmitJob", grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", what="no"
    )
    said = dlq("run", "--json", "-G", "2", "--", "true")
    (line,) = said.err.splitlines()
    assert json.loads(line)["error"]["exit_code"] == said.code != 0
    assert said.out == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_the_warning_of_the_wall_limit_is_told_once(
    master: FakeMaster, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    master.queues = desk()
    job = a_job(17, "running")
    master.jobs["17"] = job
    master.tell(an_event(1, "attempt_warned", 17, attempt=1, data={"left_s": "1e12"}), job)
    told: list[str] = []
    with Connection(master.identity_of(), patience_s=5.0) as line:
        app: Any = SimpleNamespace(connection=lambda: line, say=told.append, clock=SteadyClock())
        spec = job_pb2.JobSpec(queue="desk")
        with waiting.WaitTeller(app, spec, as_json=as_json) as teller:
            teller.look(job)
            wait_until(lambda: len(master.requests("ListEvents")) >= 3, what="looks")
    told += capfd.readouterr().err.splitlines()
    (words,) = told
    assert "job 17 reaches its time limit in " in words
    assert ("warning" in json.loads(words)) if as_json else not words.startswith("{")


def test_a_master_that_does_not_answer_ends_nothing(master: FakeMaster, dlq: Dlq) -> None:
    estimated(master, lambda spec: False)
    master.refuse_once("EstimateJob", grpc.StatusCode.INTERNAL, "INTERNAL")
    said = after(master, "run", "-G", "1", "--", "true", asked=4, dlq=dlq)
    assert "job 17 waits" in said.err
    assert said.code == 0


def test_run_uses_the_queue_of_interactive_jobs_unless_the_job_is_beyond_it(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.queues = desk()
    said = after(master, "run", "-G", "1", "--", "true", asked=1, dlq=dlq)
    assert master.specs["17"].queue == "desk"
    assert "it is in queue desk, and may run 01:00:00" in said.err
    for words, why in (
        (("-G", "4"), "not in queue desk: 4 GPUs are more than 2"),
        (("-t", "3h"), "not in queue desk: 03:00:00 is longer than 02:00:00"),
    ):
        master.jobs.clear()
        master.submitted.clear()
        master.events.clear()
        said = after(master, "run", *words, "--", "true", asked=0, dlq=dlq)
        assert why in said.err
        assert master.specs["17"].queue == ""


def test_a_user_at_the_limit_of_gpus_gets_the_usual_queue(master: FakeMaster, dlq: Dlq) -> None:
    master.queues = desk()
    full = {"what": "alice has 2 GPUs in queue desk", "queue": "desk"}
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    master.refuse_once("SubmitJob", code, "QUOTA_EXCEEDED", **full)
    said = after(master, "run", "-G", "1", "--", "true", asked=1, dlq=dlq)
    assert "so it goes to the usual queue" in said.err
    assert master.specs["17"].queue == ""


def test_submit_goes_there_only_when_it_is_told_to(master: FakeMaster, dlq: Dlq) -> None:
    refused = dlq("submit", "--interactive", "-G", "1", "--wrap", "true")
    assert "this cluster has no queue for interactive jobs" in refused.err
    master.queues = desk()
    assert dlq("submit", "-G", "1", "--wrap", "true").code == 0
    assert master.specs["17"].queue == ""
    assert dlq("submit", "--interactive", "-G", "1", "--wrap", "true").code == 0
    assert master.specs["18"].queue == "desk"
    refused = dlq("submit", "--interactive", "-G", "4", "--wrap", "true")
    assert "queue desk does not take it: 4 GPUs are more than 2" in refused.err
    assert "leave --interactive out" in refused.err
    assert "8 GPUs are more than 2" in dlq("run", "--interactive", "-G", "8", "--", "true").err
    refused = dlq("submit", "--interactive", "-p", "default", "--wrap", "true")
    assert "say one" in refused.err


def test_queues_tell_the_limits_of_interactive_jobs(master: FakeMaster, dlq: Dlq) -> None:
    master.queues = desk()
    assert "queue desk is for interactive jobs: 02:00:00 at most, 2 GPUs a job" in dlq("queues").err
    first, second = json.loads(dlq("queues", "--json").out)["queues"]
    assert first["interactive"] == {
        "default_time_limit_s": 3600.0,
        "max_time_limit_s": 7200.0,
        "gpus_per_job_count": 2,
        "gpus_per_user_count": None,
        "floor_gpus": 0.0,
    }
    assert second["interactive"] is None
