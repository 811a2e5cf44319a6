"""Deadlines as people write them, and what is sent of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dlq.v1.job_pb2 import JobSpec
from dlq_cli.spec.check import doubts
from dlq_cli.spec.fields import put
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.stored import changed
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Layer
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.reading.deadlines import (
    Due,
    deadlines_text,
    is_past,
    read_deadline,
    read_soft,
)

NOW_S = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0


def sent(**keys: object) -> JobSpec:
    """The message of a spec with these keys, as it leaves at noon."""
    layer: Layer = {}
    put(layer, "command", "train", "the test")
    for key, value in keys.items():
        put(layer, key, value, f"--{key}")
    spec = finish(layer, directory="/data")
    message = to_message(spec)
    put_instants(message, spec, now_s=NOW_S, zone=UTC)
    return message


def times(message: JobSpec) -> list[tuple[float, float]]:
    """Seconds from noon, and what an end by then earns."""
    found = []
    for step in message.deadlines:
        after_s = step.due_duration.seconds + step.due_duration.nanos / 1e9
        at_s = step.due_time.seconds - NOW_S
        found.append((at_s if step.HasField("due_time") else after_s, step.reward))
    return found


@pytest.mark.parametrize(
    ("text", "after_s", "is_instant"),
    [
        ("8h", 8 * HOUR, False),
        ("90", 1.5 * HOUR, False),
        ("1-12:00:00", 36 * HOUR, False),
        ("now+2hours", 2 * HOUR, False),
        ("18:00", 6 * HOUR, True),
        ("2026-12-02", 12 * HOUR, True),
        ("2026-12-01T13:00:00Z", HOUR, True),
        (datetime(2026, 12, 1, 14, tzinfo=UTC), 2 * HOUR, True),
    ],
)
def test_a_deadline_is_a_time_from_now_or_an_instant(
    text: object, after_s: float, is_instant: bool
) -> None:
    message = sent(deadline=text)
    assert times(message) == [(after_s, 100.0)]
    assert message.deadlines[0].HasField("due_time") is is_instant


def test_later_deadlines_may_be_said_by_the_first_one() -> None:
    written = "10h:100,T+10%:80,+50%:20,4h+400%:1"
    assert times(sent(soft_deadline=written)) == [
        (10 * HOUR, 100.0), (11 * HOUR, 80.0), (15 * HOUR, 20.0), (20 * HOUR, 1.0)
    ]  # fmt: skip
    assert times(sent(soft_deadline="18:00:90, 2026-12-02T08:00Z:30")) == [
        (6 * HOUR, 90.0), (20 * HOUR, 30.0)
    ]  # fmt: skip
    assert times(sent(soft_deadline=["10h:100", "+10%:80"])) == times(
        sent(soft_deadline="10h:100,+10%:80")
    )


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("deadline", "soon", "is not a deadline: write 8h"),
        ("deadline", "0", "is not a deadline"),
        ("soft_deadline", "8h", "has no reward"),
        ("soft_deadline", "8h:50,9h:80", "a later end earns more (80 than 50)"),
        ("soft_deadline", "8h:101", "it earns 101: want 1 to 100"),
        ("soft_deadline", "8h:nan", "it earns nan"),
        ("soft_deadline", "8h:much", "is not a reward"),
        ("soft_deadline", "+10%:80", "comes first: of what?"),
        ("soft_deadline", "18:00:100,+10%:80", "a share of the time until a date is not known"),
        ("on_miss", "cancl", "did you mean 'cancel'"),
        ("steps", "0", "at least 1 step"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(key: str, value: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        sent(**{key: value})
    assert told in refused.value.what
    assert f"--{key}" in refused.value.what


def test_one_kind_of_deadline_and_on_miss_only_with_one() -> None:
    with pytest.raises(InvalidRequest, match="both `deadline`"):
        sent(deadline="8h", soft_deadline="8h:90")
    with pytest.raises(InvalidRequest, match="on_miss means something only with a deadline"):
        sent(on_miss="cancel")


def test_everything_is_sent_and_a_stored_spec_says_it_again(tmp_path: Path) -> None:
    stored = sent(soft_deadline="10h:100,2026-12-03:80", on_miss="cancel", steps=5000, work="3h")
    assert (stored.on_miss, stored.step_count) == ("cancel", 5000)
    assert stored.run_estimate_duration.seconds == 3 * HOUR
    again = changed(stored, "job 17", ["steps=6000"], [], {})
    put_instants(again.message, again.spec, now_s=NOW_S + 60.0, zone=UTC)
    stored.step_count = 6000
    assert again.message == stored
    without = changed(stored, "job 17", ["deadline=4h"], ["soft_deadline"], {})
    assert times(without.message) == [(4 * HOUR, 100.0)]


def test_what_was_understood_is_told_in_words() -> None:
    assert deadlines_text(read_deadline("8h")) == "8 h from its submission"
    words = deadlines_text(read_soft("30m:90,18:00:20"))
    assert words == "30 min from its submission: 90, 18:00: 20"
    assert read_deadline("18:00")[0].due == Due(text="18:00")


def doubted(**keys: object) -> list[str]:
    layer: Layer = {}
    put(layer, "command", "train", "the test")
    for key, value in keys.items():
        put(layer, key, value, f"--{key}")
    return list(doubts(finish(layer, directory="/data")))


def test_a_time_limit_below_the_work_is_doubted_where_there_is_a_deadline() -> None:
    (told,) = doubted(time="2h", work="3h", deadline="8h")
    assert told == "--time: the job is ended after 7200 s, and its work takes 10800 s"
    assert doubted(time="3h", work="3h", deadline="8h") == []


def test_a_deadline_without_work_is_doubted() -> None:
    (told,) = doubted(deadline="8h")
    assert told.startswith("--deadline: the run time is unknown, so nothing can be promised yet")


def test_an_instant_that_has_passed_is_known_and_a_duration_never_has() -> None:
    assert is_past(read_deadline("2020-01-01T00:00"), NOW_S, UTC)
    assert not is_past(read_deadline("2030-01-01T00:00"), NOW_S, UTC)
    assert not is_past(read_deadline("8h"), NOW_S, UTC)
