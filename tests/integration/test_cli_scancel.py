"""`dlq slurm scancel`: which calls it makes, what it says, and its exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import job_pb2
from dlq_common.text.wire import to_timestamp
from support.cli_run import Dlq, Said
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job

pytestmark = pytest.mark.integration


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    jobs = [
        a_job(17, "running", name="train", team="vision", node_ids=["gpu01"]),
        a_job(18, name="train"),
        a_job(19, "running", name="other", node_ids=["gpu07"]),
        a_job(20, name="bobs", user="bob"),
        a_job(30, "completed", end_reason="completed", end_time=to_timestamp(EPOCH_S)),
    ]
    running.jobs = {job.job_id: job for job in jobs}
    yield running
    running.stop()


def cancelled(master: FakeMaster) -> list[str]:
    many = [job_id for request in master.requests("CancelJobs") for job_id in request.job_ids]
    return many + [request.job_id for request in master.requests("CancelJob")]


def test_many_jobs_are_one_request(master: FakeMaster, dlq: Dlq) -> None:
    numbers = [str(number) for number in range(100, 1_500)]
    master.jobs = {number: a_job(int(number), name="many") for number in numbers}
    assert dlq("slurm", "scancel", "-n", "many") == Said(0, "", "")
    asked = master.requests("CancelJobs")
    assert [len(request.job_ids) for request in asked] == [1_000, 400]
    assert not any(request.with_jobs for request in asked)
    assert cancelled(master) == numbers


def test_of_many_others_jobs_are_told_and_missing_ones_are_not(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.hidden = {"20"}
    why = "Kill job error on job id 20: Access/permission denied\n"
    assert dlq("slurm", "scancel", "17", "20", "99") == Said(210, "", f"scancel: error: {why}")
    assert master.jobs["17"].state == job_pb2.JOB_STATE_CANCELLED


def test_with_a_word_about_each_they_are_cancelled_one_by_one(master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("slurm", "scancel", "-v", "17", "18")
    assert said.err.startswith("scancel: Terminating job 17\n")
    assert "scancel: Terminating job 18\n" in said.err
    assert master.requests("CancelJobs") == []


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("17 18", ["17", "18"]),
        ("17,18", ["17", "18"]),
        ("12_[1-3,5],17", ["12_[1-3,5]", "17"]),
        ("-n train", ["17", "18"]),
        ("-n train -t PD", ["18"]),
        ("-t R -w gpu[07-08]", ["19"]),
        ("-A vision --me", ["17"]),
        ("-p nowhere", []),
        ("-q normal -n other", ["19"]),
        ("--wckey x", []),
        ("17 19 -n other", ["19"]),
    ],
)
def test_all_filters_together_choose_own_jobs(
    line: str, ids: list[str], master: FakeMaster, dlq: Dlq
) -> None:
    dlq("slurm", "scancel", *line.split())
    assert cancelled(master) == ids


def test_a_job_that_is_not_there_is_no_failure_but_for_a_signal(dlq: Dlq) -> None:
    why = "Kill job error on job id 99: Invalid job id specified\n"
    assert dlq("slurm", "scancel", "99") == Said(0, "", "")
    said = dlq("slurm", "scancel", "-v", "99")
    assert said == Said(0, "", f"scancel: Terminating job 99\nscancel: error: {why}")
    said = dlq("slurm", "scancel", "-s", "CONT", "99")
    assert said == Said(1, "", f"scancel: error: {why}")


@pytest.mark.parametrize("more", [[], ["-s", "USR1"]])
def test_a_living_job_of_another_user_is_denied(
    more: list[str], master: FakeMaster, dlq: Dlq
) -> None:
    for method in ("CancelJob", "SignalJob"):
        master.refuse(method, grpc.StatusCode.NOT_FOUND, "NOT_FOUND", what="there is no job 20")
    why = "Kill job error on job id 20: Access/permission denied\n"
    assert dlq("slurm", "scancel", *more, "20") == Said(210, "", f"scancel: error: {why}")


def test_a_job_that_has_ended_is_told_with_v_alone(dlq: Dlq) -> None:
    assert dlq("slurm", "scancel", "30") == Said(0, "", "")
    assert dlq("slurm", "scancel", "-v", "30").err.endswith(
        "Kill job error on job id 30: Job/step already completing or completed\n"
    )


@pytest.mark.parametrize("word", ["x", "3x", "12_", "12_[a]", "-", "17;rm"])
def test_one_word_that_is_no_id_stops_all(word: str, master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("slurm", "scancel", "17", word)
    assert said == Said(1, "", f"scancel: error: Invalid job id {word}\n")
    assert cancelled(master) == []


@pytest.mark.parametrize(("answer", "ids"), [(b"y\n", ["17"]), (b"n\n", []), (b"", [])])
def test_i_asks_and_the_end_of_stdin_is_a_no(
    answer: bytes, ids: list[str], master: FakeMaster, dlq: Dlq
) -> None:
    said = dlq("slurm", "scancel", "-i", "17", stdin=answer)
    assert said.code == 0
    if answer:
        assert "Cancel job_id=17 name=train partition=default [y/n]? " in said.out
    assert cancelled(master) == ids


def test_the_environment_adds_filters(master: FakeMaster, tmp_path: Path) -> None:
    Dlq(master.home(tmp_path / "home"), {"SCANCEL_STATE": "PENDING"})("slurm", "scancel", "17")
    assert cancelled(master) == []
