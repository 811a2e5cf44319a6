"""A rank that joins others, and whose workers fail again and again: its agent ends it, so that the
others go on.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq_common.live_resize import JOIN_FAILED, JOINING_S
from dlq_nodeagent.model.messages import Launch, Phase
from support.agent_bench import AgentBench, a_launch
from support.process_box import process_box


def joining(bench: AgentBench, *, log: str = "", **changes: Any) -> Launch:
    """It runs, and nothing has failed yet; it has said this."""
    bench.connect()
    given: dict[str, Any] = {"rank": 1, "live": True, "joins": True, "sizes": (1, 2)} | changes
    launch = a_launch(does="run_for=100000 beat={}", **given)
    bench.order(launch)
    bench.run(2)
    assert bench.last(launch).phase is Phase.STARTED
    bench.host.attempts[launch.key].job = replace(bench.host.attempts[launch.key].job, log=log)
    return launch


def fail_workers(bench: AgentBench, launch: Launch, times: int) -> None:
    attempt = bench.host.attempts[launch.key]
    attempt.job = replace(attempt.job, worker_failures=times)
    bench.run(3)


def test_it_is_killed_before_its_torchrun_gives_up_and_says_why() -> None:
    bench = AgentBench()
    launch = joining(bench)
    fail_workers(bench, launch, 3)
    report = bench.last(launch)
    assert (report.phase, report.signal) == (Phase.EXITED, signal.SIGKILL)
    assert (report.ended_by, report.error) == ("killed", JOIN_FAILED)


def test_why_it_was_ended_is_known_to_the_next_agent() -> None:
    bench = AgentBench()
    launch = joining(bench)
    bench.acks = False
    fail_workers(bench, launch, 3)
    bench.restart()
    bench.connect()
    assert bench.last(launch).error == JOIN_FAILED


def test_failures_while_no_agent_was_there_are_seen_by_the_next() -> None:
    bench = AgentBench()
    launch = joining(bench)
    attempt = bench.host.attempts[launch.key]
    attempt.job = replace(attempt.job, worker_failures=3)
    bench.restart(down_s=20)
    bench.connect(launch)
    bench.run(3)
    assert bench.last(launch).error == JOIN_FAILED


def test_one_that_says_that_others_have_gone_is_given_more_time_than_they() -> None:
    bench = AgentBench()
    launch = joining(bench, log="x\nRuntimeError: Connection closed by peer\nand more\n" * 9)
    fail_workers(bench, launch, 5)
    assert bench.runs(launch)
    fail_workers(bench, launch, 6)
    assert bench.last(launch).error == JOIN_FAILED


@pytest.mark.parametrize(
    ("failures", "late_s", "changes"),
    [
        (2, 0.0, {}),  # others that leave meanwhile cost it some
        (16, JOINING_S, {}),
        (16, 0.0, {"joins": False}),
    ],
)
def test_nobody_else_is_ended_for_failures_of_workers(
    failures: int, late_s: float, changes: dict[str, Any]
) -> None:
    bench = AgentBench()
    launch = joining(bench, **changes)
    bench.run(late_s, step_s=5.0)
    fail_workers(bench, launch, failures)
    assert bench.runs(launch)


@pytest.mark.parametrize("mode", ["host", "none"])
def test_failures_are_counted_by_what_torchrun_leaves_in_the_directory_of_its_logs(
    tmp_path: Path, mode: str
) -> None:
    with process_box(tmp_path / "state", mode) as box:
        handle = box.sh("sleep 1000")
        logs = Path(box.runtime.job_files(handle.key).job_dir) / "torchrun"
        assert box.runtime.worker_failures(handle) == 0
        logs.symlink_to("/")
        assert box.runtime.worker_failures(handle) == 0, "no link is followed"
        logs.unlink()
        for name in ("attempt_0", "attempt_2", "attempt_10", "attempt_-4", "attempt_99999"):
            (logs / "17.1_abc" / name / "0").mkdir(parents=True)
        assert box.runtime.worker_failures(handle) == 10
        (logs / "a-file").touch()
        assert box.runtime.worker_failures(handle) == 10
