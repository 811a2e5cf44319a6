"""What the demo claims to prove, it can also disprove."""

import subprocess
import sys
from pathlib import Path

import pytest

import processes
import proof
import work
from dlq.v1 import job_pb2
from proof import ProofFailed

COMPLETED = job_pb2.JOB_STATE_COMPLETED
BEFORE = {("1", "1", "0"): 100, ("2", "1", "0"): 200}


def test_a_submission_names_job_shape_and_directory(tmp_path: Path) -> None:
    arguments = work.DDP.submission(tmp_path)
    assert arguments[: arguments.index("--")] == [
        "submit", "--parsable", "-J", "ddp-mlp", "-N", "2", "--gpus-per-node", "2",
        "-D", str(tmp_path), "--signal", "TERM",
    ]  # fmt: skip
    assert arguments[arguments.index("--") + 1 :] == work.DDP.command(tmp_path)


def test_two_trainings_that_differ_in_one_byte_are_no_proof(tmp_path: Path) -> None:
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "loss.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
        (tmp_path / name / "weights.npz").write_bytes(b"weights")
    assert "1 losses" in proof.same_training(tmp_path / "inside", tmp_path / "outside")
    (tmp_path / "inside" / "weights.npz").write_bytes(b"weighty")
    with pytest.raises(ProofFailed, match="weights"):
        proof.same_training(tmp_path / "inside", tmp_path / "outside")


def test_a_job_that_stayed_on_its_node_was_not_moved() -> None:
    assert proof.moved(["a", "b"]) == "ran on a, then b"
    with pytest.raises(ProofFailed):
        proof.moved(["a", "a"])


def test_a_job_that_ended_in_between_was_not_restarted() -> None:
    proof.nothing_restarted(BEFORE, {("1", "1", "0"): 100}, {"2"})


@pytest.mark.parametrize("after", [{}, {("2", "1", "0"): 201}, {("2", "2", "0"): 200}])
def test_a_job_that_is_gone_or_has_another_process_was_restarted(
    after: dict[tuple[str, str, str], int],
) -> None:
    with pytest.raises(ProofFailed, match="job 2 had process 200"):
        proof.nothing_restarted(BEFORE, {("1", "1", "0"): 100} | after, set())


@pytest.mark.parametrize(
    ("jobs", "complaint"),
    [
        ([], "1 jobs were submitted, 0 are known"),
        ([job_pb2.Job(job_id="1", state=job_pb2.JOB_STATE_FAILED)], "FAILED"),
        ([job_pb2.Job(job_id="1", state=COMPLETED, attempt_count=2)], "started 2 times"),
    ],
)
def test_a_job_that_is_lost_failed_or_doubled_is_told(
    jobs: list[job_pb2.Job], complaint: str
) -> None:
    with pytest.raises(ProofFailed, match=complaint):
        proof.all_completed(jobs, 1)


def test_completed_jobs_with_one_attempt_more_than_preemptions_are_in_order() -> None:
    job = job_pb2.Job(job_id="1", state=COMPLETED, attempt_count=2, preemption_count=1)
    assert "1 jobs completed" in proof.all_completed([job], 1)


def test_processes_are_found_by_the_directory_and_known_by_their_rank(tmp_path: Path) -> None:
    environment = {
        "DLQ_JOB_ID": "17", "DLQ_ATTEMPT": "2", "DLQ_NODE_RANK": "0",
        "DLQ_CHECKPOINT_DIR": str(tmp_path / "17" / "2"),
    }  # fmt: skip
    waits = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        waits, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdout.readline()  # it has become what it is to be
        assert processes.of_jobs(tmp_path) == {("17", "2", "0"): job.pid}
        with pytest.raises(ProofFailed, match=f"still running: {job.pid}"):
            proof.nothing_left(tmp_path, set())
        job.stdin.close()
    assert proof.nothing_left(tmp_path, set())


def test_a_control_group_that_is_still_there_is_something_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CGROUPS", tmp_path)
    (tmp_path / "memory" / "dlq" / "node-a").mkdir(parents=True)
    with pytest.raises(ProofFailed, match=r"still there: .*memory/dlq/node-a"):
        proof.nothing_left(tmp_path / "demo", {"/dlq/node-a", "/dlq/node-a/1.1.0"})
    assert "2 control groups" in proof.nothing_left(
        tmp_path / "demo", {"/dlq/node-b", "/dlq/node-b/1.1.0"}
    )


def job_at(step: int, attempt: int) -> job_pb2.Job:
    progress = job_pb2.Progress(step=step)
    return job_pb2.Job(job_id="2", attempt_count=attempt, progress=progress)


def test_an_attempt_whose_steps_go_on_under_a_new_agent_is_the_same() -> None:
    assert proof.same_attempt(job_at(100, 2), job_at(101, 2)) == (
        "attempt 2 of job 2 went on from step 100 to 101"
    )


@pytest.mark.parametrize("after", [job_at(100, 2), job_at(200, 3)])
def test_an_attempt_that_stands_still_or_was_replaced_did_not_go_on(after: job_pb2.Job) -> None:
    with pytest.raises(ProofFailed):
        proof.same_attempt(job_at(100, 2), after)


def test_jobs_have_as_many_steps_as_the_machine_is_fast() -> None:
    release = Path("/tmp/released")
    half = work.Cast.fitted(0.5, release)
    assert half.long.steps == work.LONG.steps / 2
    double = work.Cast.fitted(2.0, release)
    assert [each.name for each in half.all] == [each.name for each in double.all]
    assert all(each.options[-2:] == ("--slow-until", str(release)) for each in half.all)
