"""The knobs of the fake runtime's jobs, and launch plans that are refused as values."""

from typing import Any

import pytest

from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.runtimes.fake.attempt import FakeJob


def test_every_knob_is_read_from_the_command() -> None:
    words = (
        *("fake", "run_for=1.5", "exit_code=3", "exit_signal=11", "ignores_signals=yes"),
        *("saves_for=2", "saved_code=0", "start_error=no such file", "log=a=b", "beat={}"),
        "done=no",
    )
    assert FakeJob.from_argv(words) == FakeJob(
        run_for=1.5,
        exit_code=3,
        exit_signal=11,
        ignores_signals=True,
        saves_for=2.0,
        saved_code=0,
        start_error="no such file",
        log="a=b",
        beat="{}",
        done=False,
    )


def test_any_other_command_ends_at_once_with_0() -> None:
    assert FakeJob.from_argv(("python", "train.py")) == FakeJob()


@pytest.mark.parametrize("word", ["runs_for=1", "run_for", "run_for=x", "exit_code=1.5", "done=1"])
def test_a_knob_that_is_not_one_is_refused_by_name(word: str) -> None:
    with pytest.raises(LaunchRefused, match=word.split("=")[0]):
        FakeJob.from_argv(("fake", word))


GOOD: dict[str, Any] = {
    "job_id": "17",
    "attempt": 2,
    "epoch": 3,
    "node_rank": 0,
    "argv": ("true",),
    "uid": 1000,
    "gid": 1000,
}


@pytest.mark.parametrize(
    "bad",
    [
        {"job_id": "../17"},
        {"job_id": "017"},
        {"job_id": "17\n"},
        {"job_id": ""},
        {"job_id": "\uff11\uff17"},
        {"attempt": -1},
        {"epoch": -1},
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a\0b",)},
        {"cwd": "home"},
        {"cwd": "/a\0b"},
        {"env": {"": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\0y"}},
        {"hold_s": 0},
        {"grace_s": -1},
        {"signal": 0},
        {"signal": 65},
        {"pids_max": 0},
        {"memory_bytes": 0},
        {"cpus": 0.0},
        {"log_ring_bytes": 100},
    ],
)
def test_a_plan_with_one_bad_field_is_refused(bad: dict[str, Any]) -> None:
    LaunchPlan(**GOOD)
    with pytest.raises(LaunchRefused):
        LaunchPlan(**(GOOD | bad))


def test_an_attempt_key_reads_back_as_it_is_written() -> None:
    key = RankKey("17", 2, 0)
    assert str(key) == "17.2.0"
    assert RankKey.parse("17.2.0") == key


def test_a_plan_does_not_change_with_the_mapping_it_was_made_from() -> None:
    env = {"A": "1"}
    plan = LaunchPlan(**(GOOD | {"env": env}))
    env["A"] = "2"
    assert plan.env["A"] == "1"
