"""What the commands print that follow a job, go inside it, look back, or read specs: text and
JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq.v1 import exec_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job, an_attempt

pytestmark = pytest.mark.integration

SPEC = """name = "mnist"
command = "python train.py"
time_limit = "90m"

[resources]
gpus = 8

[preempt]
signal = "USR1@120"
"""


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    """A job that runs, one that has failed with output, and those that ended in each other way."""
    running = FakeMaster()
    ends = ("completed", "failed", "timed_out", "cancelled")
    for number, state in enumerate(ends, start=17):
        running.jobs[str(number)] = a_job(
            number, state, exit_code=number - 17, end_reason=state, attempt_count=1,
            start_time=to_timestamp(EPOCH_S + 30), end_time=to_timestamp(EPOCH_S + 3630),
            run_duration=to_duration(3600), gpu_seconds=28_800.0, lost_gpu_seconds=360.0,
            preemption_count=number - 17,
        )  # fmt: skip
    running.jobs["21"] = a_job(21, "running")
    running.attempts["18"] = [an_attempt(18, 1, "failed")]
    running.logs["18", 1, 0] = b"epoch 1\nepoch 2\n\x1b[31mValueError\x1b[0m: no data\n"
    yield running
    running.stop()


@pytest.fixture
def dlq(master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.chdir(tmp_path)
    return Dlq(master.home(tmp_path / "home"))


@pytest.mark.parametrize(
    "line",
    [
        "history -S all",
        "history -S all -o id,state,exit,gpu_hours -P",
        "history -S all -s F,TO",
        "attach 18",
    ],
)
def test_text_of(line: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq(*line.split())
    assert f"exit code {said.code}\n{said.out}--- stderr\n{said.err}" == snapshot


def test_history_in_json(dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq("history", "18", "--json")
    assert (said.code, said.err) == (0, "")
    assert json.dumps(json.loads(said.out), indent=1) == snapshot


ENDS = {
    "code": exec_pb2.ExecEnded(exit_code=3),
    "signal": exec_pb2.ExecEnded(signal=9),
    "not found": exec_pb2.ExecEnded(exit_code=127, error="nvidia-smi: not found"),
    "rank": exec_pb2.ExecEnded(signal=9, rank_ended=True),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_command_inside_a_job_is_printed_and_ends_as(
    end: str, master: FakeMaster, dlq: Dlq, snapshot: SnapshotAssertion
) -> None:
    master.inside = [
        exec_pb2.ExecOutput(stdout=b"GPU 0: H100\n"),
        exec_pb2.ExecOutput(stderr=b"a warning\n"),
        exec_pb2.ExecOutput(ended=ENDS[end]),
    ]
    said = dlq("exec", "-n", "21", "--", "nvidia-smi", "-L")
    assert f"exit code {said.code}\n{said.out}--- stderr\n{said.err}" == snapshot
    (asked,) = master.requests("ExecJob")
    assert (asked.opening.job_id, list(asked.opening.spec.command)) == ("21", ["nvidia-smi", "-L"])


@pytest.mark.parametrize("form", ["toml", "yaml", "script"])
def test_the_template_as(form: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq("spec", "init", "--form", form)
    assert (said.code, said.err) == (0, "")
    assert said.out == snapshot
    told = json.loads(dlq("spec", "init", "--form", form, "--json").out)
    assert told == {"schema": "dlq.v1", "file": None, "form": form, "text": said.out}


@pytest.mark.parametrize("flags", [(), ("--explain",), ("--json",)])
def test_a_check_of_two_files_as(
    flags: tuple[str, ...], dlq: Dlq, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "job.toml").write_text(SPEC)
    (tmp_path / "bad.yaml").write_text("command: x\nnode: 2\ntime_limit: soon\n")
    said = dlq("spec", "check", *flags, "job.toml", "bad.yaml", "none.sh")
    out = json.dumps(json.loads(said.out), indent=1) if "--json" in flags else said.out
    told = f"exit code {said.code}\n{out}--- stderr\n{said.err}"
    assert told.replace(str(tmp_path), "/here") == snapshot


def test_logs_of_all_attempts_stand_in_their_order_under_a_line_each(
    dlq: Dlq, master: FakeMaster
) -> None:
    master.attempts["18"] = [an_attempt(18, 2, "failed"), an_attempt(18, 1, "preempted")]
    master.logs["18", 1, 0] = b"epoch 1\n"
    master.logs["18", 2, 0] = b"epoch 2\n"
    said = dlq("logs", "--all", "18")
    assert said.code == 0
    lines = said.out.splitlines()
    assert [lines[1], lines[3]] == ["epoch 1", "epoch 2"]
    assert lines[0].startswith("==> job 18, attempt 1: preempted on ")
    assert lines[2].startswith("==> job 18, attempt 2: failed on ")


@pytest.mark.parametrize("more", [["-f"], ["--attempt", "1"]])
def test_logs_of_all_attempts_are_not_followed_and_not_chosen(dlq: Dlq, more: list[str]) -> None:
    said = dlq("logs", "--all", *more, "18")
    assert said.code == 2
    assert "--all" in said.err


def test_an_attempt_whose_output_no_node_keeps_is_told_and_the_others_are_printed(
    dlq: Dlq, master: FakeMaster
) -> None:
    master.attempts["18"] = [an_attempt(18, 1, "preempted"), an_attempt(18, 2, "failed")]
    del master.logs["18", 1, 0]
    master.logs["18", 2, 0] = b"epoch 2\n"
    said = dlq("logs", "--all", "18")
    assert (said.code, said.out.splitlines()[-1]) == (0, "epoch 2")
    assert "no such output" in said.err
    del master.logs["18", 2, 0]
    assert dlq("logs", "--all", "18").code == 3
