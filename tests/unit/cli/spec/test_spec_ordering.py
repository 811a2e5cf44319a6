"""When a job may start, from what people write to the message that travels."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_cli.output.zone import LocalZone
from dlq_cli.spec.fields import BY_NAME, layer_from
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import to_message
from dlq_cli.spec.validate import finish
from dlq_common.job_fields.reading.ordering import (
    MOST_TERMS,
    DependencyText,
    TermText,
    begin_s,
    read_array,
    read_begin,
    read_dependency,
)


def message(*flags: tuple[str, str]) -> job_pb2.JobSpec:
    named = [(BY_NAME[name], value, name) for name, value in flags]
    layer = layer_from([*named, (BY_NAME["-J"], "n", "-J")])
    layer["command"] = layer["name"]._replace(value=("true",))
    return to_message(finish(merge([layer], {}), directory="/"))


@pytest.mark.parametrize(
    ("text", "dependency"),
    [
        ("afterok:12", DependencyText((TermText("afterok", "12"),), False)),
        (
            "afterok:12:13_4,afterany:14",
            DependencyText(
                (
                    TermText("afterok", "12"),
                    TermText("afterok", "13_4"),
                    TermText("afterany", "14"),
                ),
                False,
            ),
        ),
        (
            "afterok:12?afternotok:13",
            DependencyText((TermText("afterok", "12"), TermText("afternotok", "13")), True),
        ),
        (
            "afterok:1_[0-1,4],after:3",
            DependencyText(
                (
                    TermText("afterok", "1_0"),
                    TermText("afterok", "1_1"),
                    TermText("afterok", "1_4"),
                    TermText("after", "3"),
                ),
                False,
            ),
        ),
        ("singleton", DependencyText((TermText("singleton", ""),), False)),
        ("aftercorr:12_*", DependencyText((TermText("aftercorr", "12"),), False)),
        (
            "after:12+5:1_3+0:9",
            DependencyText(
                (TermText("after", "12", 5), TermText("after", "1_3"), TermText("after", "9")),
                False,
            ),
        ),
        ("AfterOK:7", DependencyText((TermText("afterok", "7"),), False)),
        (
            ["afterok:12", "after:3"],
            DependencyText((TermText("afterok", "12"), TermText("after", "3")), False),
        ),
    ],
)
def test_slurms_words_for_dependencies_are_read(text: object, dependency: DependencyText) -> None:
    assert read_dependency(text) == dependency


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no jobs"),
        ("12", "what should have become of job 12"),
        ("afterok", "names no job"),
        ("afterok:train", "is not a job"),
        ("afterok:0", "is not a job"),
        ("afterok:1_[3-1]", "is empty"),
        ("afterok:1_[", "is not a job"),
        ("afterok:1,after:2?after:3", "do not go together"),
        ("aftercorr", "names no job"),
        ("afterok:12+5", "afterok takes no delay"),
        ("after:12+527041", "no number of minutes"),
        ("after:12+", "no number of minutes"),
        ("singleton:12", "takes no job"),
        ("after:12+x", "no number of minutes"),
        (7, "names no jobs"),
    ],
)
def test_a_dependency_that_cannot_be_meant_says_why(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_dependency(text)


def test_flags_become_the_message_that_travels() -> None:
    spec = message(
        ("-a", "0-9:3%2"), ("-d", "afterok:12?singleton"), ("--kill-on-invalid-dep", "yes")
    )
    assert [(each.first, each.last, each.step) for each in spec.array.ranges] == [(0, 9, 3)]
    assert spec.array.concurrent_count == 2
    assert spec.dependency.any
    assert spec.dependency.cancel_if_never
    assert [term.relation for term in spec.dependency.terms] == [
        job_pb2.DEPENDENCY_RELATION_AFTEROK,
        job_pb2.DEPENDENCY_RELATION_SINGLETON,
    ]
    assert not message().HasField("array")
    assert not message().HasField("dependency")


def test_a_delay_travels_in_seconds() -> None:
    spec = message(("-d", "after:12+5,aftercorr:9"))
    delayed, corresponding = spec.dependency.terms
    assert delayed.delay_duration.seconds == 300
    assert not corresponding.HasField("delay_duration")
    assert corresponding.relation == job_pb2.DEPENDENCY_RELATION_AFTERCORR


@pytest.mark.parametrize("raw", [True, 1.5, None, {"a": 1}])
def test_an_array_is_text_or_numbers(raw: Any) -> None:
    with pytest.raises(ValueError, match="names no indexes"):
        read_array(raw)


def test_a_toml_list_and_a_number_are_arrays_too() -> None:
    assert read_array([1, 3, 7]) == read_array("1,3,7")
    assert read_array(5) == read_array("5")


def test_a_toml_instant_is_a_begin() -> None:
    zone = timezone(timedelta(hours=1))
    assert begin_s(read_begin(datetime(2026, 12, 1, 8, tzinfo=zone)), now_s=0.0, zone=UTC) == (
        datetime(2026, 12, 1, 7, tzinfo=UTC).timestamp()
    )
    with pytest.raises(ValueError, match="is not an instant"):
        read_begin(17)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A submitter whose shell says TZ=Europe/Berlin."""
    import time

    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield LocalZone()
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "afterok" + ":12_[0-99999]" * 20_000,
        ",".join(f"afterok:{number}" for number in range(1, 50_000)),
        "afterok:1?" * 50_000 + "afterok:2_[0-99999]",
    ],
    ids=["tasks", "jobs", "any"],
)
def test_a_dependency_on_very_many_jobs_is_refused_before_they_are_all_read(text: str) -> None:
    with pytest.raises(ValueError, match=f"more than {MOST_TERMS} jobs"):
        read_dependency(text)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-07-01T08:00", "2026-07-01T06:00:00+00:00"),  # summer time of that day
        ("2026-12-01T08:00", "2026-12-01T07:00:00+00:00"),
        ("2026-12-01", "2026-11-30T23:00:00+00:00"),
        ("2026-12-01T08:00Z", "2026-12-01T08:00:00+00:00"),
        ("2026-12-01T08:00:30+05:00", "2026-12-01T03:00:30+00:00"),
        ("18:00", "2026-11-20T17:00:00+00:00"),
        ("08:00", "2026-11-21T07:00:00+00:00"),  # today's is past
        ("now+2hours", "2026-11-20T14:00:00+00:00"),
        ("now+90m", "2026-11-20T13:30:00+00:00"),
        ("now", "2026-11-20T12:00:00+00:00"),
    ],
)
def test_a_begin_is_meant_in_the_submitters_zone(
    berlin: LocalZone, text: str, instant: str
) -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
    meant = begin_s(read_begin(text), now_s=noon, zone=berlin)
    assert datetime.fromtimestamp(meant, UTC).isoformat() == instant
