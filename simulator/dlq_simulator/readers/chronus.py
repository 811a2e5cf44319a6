"""The Chronus artifact's workloads: times in minutes, deadlines and rewards as lists `a-b-c`."""

from __future__ import annotations

from dlq_simulator.columns import BadValue, positive, seconds, whole, word
from dlq_simulator.readers.dialect import Column, Dialect, SkipRow, Values

_MINUTE_S = 60
# The artifact's rewards end at 10, the paper's (section 3.2) at 100.
_REWARD = 10


def _minutes(text: str) -> int | float:
    return seconds(text) * _MINUTE_S


def _numbers(text: str) -> tuple[tuple[float, float], ...]:
    """`a-b-c` as ((a, 0), ...): the second place is the list's other half, given by `finish`."""
    return tuple((positive(part), 0.0) for part in text.split("-"))


def _finish(values: Values) -> Values:
    if values["num_gpus"] == 0:
        raise SkipRow("num_gpu is 0")
    delays = [delay for delay, _ in values.pop("expect_time_list")]
    rewards = [reward for reward, _ in values.pop("expect_value_list")]
    best_effort = values.pop("best_effort") == 1
    values["vc"] = values["user"]
    if best_effort:
        return {**values, "kind": "be"}
    if len(delays) != len(rewards):
        raise BadValue(f"{len(delays)} times and {len(rewards)} values")
    if len(delays) == 1:
        return {**values, "kind": "strict", "deadline_s": delays[0] * _MINUTE_S}
    steps = tuple((d * _MINUTE_S, r * _REWARD) for d, r in zip(delays, rewards, strict=True))
    return {**values, "kind": "soft", "deadline_s": steps[0][0], "soft_steps": steps}


CHRONUS = Dialect(
    name="chronus",
    marks=frozenset({"num_gpu", "submit_time", "duration", "expect_time_list", "best_effort"}),
    columns={
        "job_id": Column("job_id", word),
        "user": Column("user", word),
        "num_gpu": Column("num_gpus", whole),
        "submit_time": Column("submit_time_s", _minutes),
        "iterations": Column("iterations", whole),
        "model_name": Column("model", word),
        "duration": Column("duration_s", _minutes),
        "expect_time_list": Column("expect_time_list", _numbers),
        "expect_value_list": Column("expect_value_list", _numbers),
        "best_effort": Column("best_effort", whole),
    },
    required=(
        "job_id",
        "user",
        "num_gpu",
        "submit_time",
        "duration",
        "expect_time_list",
        "expect_value_list",
        "best_effort",
    ),
    silent=frozenset({"interval", "job_type"}),
    finish=_finish,
)
