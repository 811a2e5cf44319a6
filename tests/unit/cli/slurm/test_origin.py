"""The command that submitted a job travels with it, and is shown by Slurm's programs."""

from __future__ import annotations

import os

import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.slurm.jobs.origin import origin_of
from dlq_cli.slurm.jobs.seen import SeenJob, stdout_of, written_stderr, written_stdout
from dlq_common.errors import InvalidRequest
from dlq_master.rpc.specs.spec import check_said


def seen(output: str, error: str = "", **more: object) -> SeenJob:
    spec = job_pb2.JobSpec(working_directory="/home/a")
    spec.output.stdout_path, spec.output.stderr_path = output, error
    job = job_pb2.Job(job_id="17", user="ann", name="train", **more)  # type: ignore[arg-type]
    return SeenJob(job, "lab", 0.0, wire.JobDetail(spec=spec))


def test_the_line_is_one_that_a_shell_reads_again() -> None:
    made = origin_of("sbatch", ["-J", "two words", "a.sh"], "a.sh")
    assert made.command_line == "sbatch -J 'two words' a.sh"
    assert made.script_path.endswith("/a.sh")
    assert made.session_number == os.getsid(0), "0 where the session began outside of the container"


def test_a_line_of_any_size_and_letters_is_one_that_the_master_takes() -> None:
    made = origin_of("sbatch", ["--wrap", "a\nb\x1b[31m" + "x" * 9_000])
    spec = job_pb2.JobSpec(command=["true"], origin=made)
    spec.resources.gpu_count = 1
    check_said(spec)


@pytest.mark.parametrize("text", ["two\nlines", "x" * 5_000, "\x1b[0m"])
def test_the_master_refuses_what_is_no_line(text: str) -> None:
    spec = job_pb2.JobSpec(command=["true"])
    spec.resources.gpu_count = 1
    spec.origin.command_line = text
    with pytest.raises(InvalidRequest, match=r"origin\.command_line"):
        check_said(spec)


def test_files_of_the_output_are_named_as_in_slurm() -> None:
    job = seen("out-%j.txt")
    assert (stdout_of(job), written_stdout(job)) == ("/home/a/out-%j.txt", "/home/a/out-17.txt")
    assert written_stderr(job) == "/home/a/out-17.txt"
    assert written_stderr(seen("o", "/tmp/%x-%u")) == "/tmp/train-ann"
    assert written_stdout(seen("")) == ""


def test_a_line_for_many_tasks_has_slurms_number_for_none() -> None:
    task = job_pb2.ArrayTask(array_id="17", index=0, task_count=6)
    line = seen("slurm-%A_%a.out", array_task=task)
    line.job.job_id = "17_[0-5]"
    assert written_stdout(line) == "/home/a/slurm-17_4294967294.out"
    line.job.job_id = "17"
    assert written_stdout(line) == "/home/a/slurm-17_0.out"
