"""A data-parallel job over two nodes, preempted and resumed, trains as one that nobody
disturbed.
"""

import sys
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from support.training_attempts import JOBS, TrainingJob
from support.users_view import UsersView

pytestmark = pytest.mark.e2e

OPTIONS = ["--steps", "3000", "--hidden", "1024", "--save-every", "100"]
ALL_GPUS = ("-N", "2", "--gpus-per-node", "8")


def test_a_gang_of_two_nodes_makes_way_and_goes_on_from_its_checkpoint(
    user: UsersView, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    job = user.submit(
        "-J", "ddp-mlp", "-N", "2", "--gpus-per-node", "4", "-D", str(out), "--",
        sys.executable, str(JOBS / "ddp_mlp.py"), "--out", str(out), *OPTIONS,
        "--slow-until", str(out / "seen"),
    )  # fmt: skip
    user.wait(job, lambda now: now.HasField("checkpoint") and now.level > 0, "it saves, and sinks")

    rival = user.submit(*ALL_GPUS, "--", sys.executable, "-c", "print('all mine')")
    assert user.wait_for_end(rival).state == job_pb2.JOB_STATE_COMPLETED
    (out / "seen").touch()  # whatever the machine does, the rival came in the middle
    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)

    shown = user.show(job)
    assert shown["lost_gpu_seconds"] == 0
    first, second = shown["attempts"]
    assert (first["state"], first["stop_cause"]) == ("preempted", "preempt")
    assert [rank["exit_code"] for rank in first["ranks"]] == [99, 99]
    assert [rank["node_id"] for rank in second["ranks"]] == ["e2e-a", "e2e-b"]
    assert (second["state"], second["stop_cause"]) == ("succeeded", None)

    undisturbed = TrainingJob(tmp_path / "undisturbed", "ddp_mlp.py", OPTIONS, nnodes=2)
    undisturbed.start()
    try:
        assert undisturbed.end() == [0, 0]
    finally:
        undisturbed.abandon()
    assert (out / "loss.jsonl").read_bytes() == undisturbed.loss_log
    assert (out / "weights.npz").read_bytes() == undisturbed.weights
