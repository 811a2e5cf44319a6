"""The Chronus artifact's workloads: times in minutes, deadlines and rewards as lists `a-b-c`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dlq_simulator.columns import BadValue, positive, seconds, whole, word, zero_one
from dlq_simulator.readers.dialect import Dialect, DialectColumn, SkipRow, Values

_MINUTE_S = 60
# The artifact's rewards end at 10, the paper's (section 3.2) at 100.
_REWARD = 10
_TIMES, _VALUES = "expect_time_list", "expect_value_list"


def _minutes(text: str) -> int | float:
    return seconds(text) * _MINUTE_S


def _numbers(text: str) -> tuple[tuple[float, float], ...]:
    """`a-b-c` as ((a, 0), ...): the second place is the list's other half, given by `finish`."""
    return tuple((positive(part), 0.0) for part in text.split("-"))


def _finish(values: Values) -> Values:
    if values["num_gpus"] == 0:
        raise SkipRow("num_gpu is 0")
    delays = [delay for delay, _ in values.pop(_TIMES, ())]
    rewards = [reward for reward, _ in values.pop(_VALUES, ())]
    values["vc"] = values["user"]
    if values.pop("best_effort"):
        return {**values, "kind": "be"}
    _check(delays, rewards)
    if len(delays) == 1:
        return {**values, "kind": "strict", "deadline_s": delays[0] * _MINUTE_S}
    steps = tuple((d * _MINUTE_S, r * _REWARD) for d, r in zip(delays, rewards, strict=True))
    return {**values, "kind": "soft", "deadline_s": steps[0][0], "soft_steps": steps}


def _check(delays: Sequence[float], rewards: Sequence[float]) -> None:
    """The promise of a job's two lists with a deadline, as `soft_steps` in dlq's own traces."""
    if not delays:
        raise BadValue("a job that is not best-effort needs it", _TIMES)
    if len(delays) != len(rewards):
        raise BadValue(f"{len(delays)} times and {len(rewards)} values", _VALUES)
    if any(later <= earlier for earlier, later in pairwise(delays)):
        raise BadValue("expected rising times", _TIMES)
    if any(later > earlier for earlier, later in pairwise(rewards)):
        raise BadValue("expected values that never rise", _VALUES)
    if not all(1 <= reward * _REWARD <= 100 for reward in rewards):
        raise BadValue("expected values from 0.1 to 10", _VALUES)


CHRONUS = Dialect(
    name="chronus",
    marks=frozenset({"num_gpu", "submit_time", "duration", "expect_time_list", "best_effort"}),
    columns={
        "job_id": DialectColumn("job_id", word),
        "user": DialectColumn("user", word),
        "num_gpu": DialectColumn("num_gpus", whole),
        "submit_time": DialectColumn("submit_time_s", _minutes),
        "iterations": DialectColumn("iterations", whole),
        "model_name": DialectColumn("model", word),
        "duration": DialectColumn("duration_s", _minutes),
        "expect_time_list": DialectColumn("expect_time_list", _numbers),
        "expect_value_list": DialectColumn("expect_value_list", _numbers),
        "best_effort": DialectColumn("best_effort", zero_one),
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
    may_be_empty=frozenset({_TIMES, _VALUES}),
    silent=frozenset({"interval", "job_type"}),
    finish=_finish,
)
