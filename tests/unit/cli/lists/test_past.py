"""`dlq history`: its columns, sacct's words for them, and the spans that people write."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dlq_cli.lists.columns import COLUMNS
from dlq_cli.lists.past import DEFAULT, PAST, parse_format, past_facts, past_table
from dlq_cli.lists.since import ended_within_s, midnight, past_instant
from dlq_cli.output.render import OutputLook
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import to_duration, to_timestamp
from support.wire_jobs import EPOCH_S, a_job

PIPE = OutputLook(tty=False, color=False, now_s=EPOCH_S + 100)
TERMINAL = OutputLook(tty=True, color=False, now_s=EPOCH_S + 100)
JOB = a_job(
    17, "failed", exit_code=1, exit_signal=9, gpu_seconds=9_000.0, lost_gpu_seconds=450.0,
    run_duration=to_duration(1125), preemption_count=2, start_time=to_timestamp(EPOCH_S),
    end_time=to_timestamp(EPOCH_S + 1200),
)  # fmt: skip


def cells(format_: str, look: OutputLook = PIPE) -> list[str]:
    return [each.text(JOB, look) for each in parse_format(format_)]


def test_a_job_is_told_with_its_exit_as_in_sacct_and_with_what_it_cost() -> None:
    asked = "id,state,exit,end,elapsed,gpu_hours,preemptions,lost_gpu_hours"
    assert cells(asked) == [
        "17", "failed", "1:9", "2026-11-20T08:20:00.000Z", "00:18:45", "2.50", "2", "0.12",
    ]  # fmt: skip


def test_a_job_that_never_ran_came_to_nothing() -> None:
    job = a_job(18, "cancelled")
    told = [each.text(job, PIPE) for each in parse_format("exit,start,elapsed,gpu_hours")]
    assert told == ["0:0", "", "00:00:00", "0.00"]


def test_saccts_names_and_widths_are_understood() -> None:
    assert cells("JobID,JobName%-10,JobName%4,Partition,ExitCode,Elapsed") == [
        "17", "train-17  ", "trai", "default", "1:9", "00:18:45",
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", ["gpu_hour", "JobName%x", "%i", "AllocTRES", "id;rm"])
def test_a_column_that_is_none_is_refused_with_the_known_ones(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="no column") as caught:
        parse_format(wrong)
    assert "gpu_hours" in caught.value.hint


def test_without_a_format_the_columns_are_saccts_and_ours() -> None:
    head, row = past_table(parse_format(""), [JOB], PIPE, headings=True).splitlines()
    assert head.split() == [PAST[name].cell.heading for name in DEFAULT]
    assert row.split()[:6] == ["17", "train-17", "alice", "default", "8", "failed"]


def test_every_column_can_be_told_of_any_job() -> None:
    for job in (JOB, a_job(1), a_job(2, "running"), a_job(3, "timed_out")):
        for look in (PIPE, TERMINAL):
            assert all(
                isinstance(each.text(job, look), str) for each in parse_format(",".join(PAST))
            )
    assert PAST["id"] is COLUMNS["id"]


def test_a_terminal_gets_times_in_the_readers_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert cells("end", TERMINAL) == ["2026-11-20 17:20 JST"]
        assert cells("end", PIPE) == ["2026-11-20T08:20:00.000Z"]
        noon = datetime(2026, 11, 20, 3, 0, tzinfo=UTC).timestamp()
        assert midnight(noon) == datetime(2026, 11, 19, 15, 0, tzinfo=UTC).timestamp()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_programs_get_numbers() -> None:
    told = past_facts(JOB)
    assert (told["gpu_seconds"], told["gpu_hours"], told["lost_gpu_hours"]) == (9000.0, 2.5, 0.125)
    assert (told["exit_code"], told["exit_signal"], told["run_time_s"]) == (1, 9, 1125.0)


@pytest.mark.parametrize(
    ("text", "back_s"),
    [
        ("2d", 172_800),
        ("90m", 5_400),
        ("now-2days", 172_800),
        ("now-90m", 5_400),
        ("now-1hour", 3_600),
        ("now", 0),
        ("2026-11-20T06:00:00Z", 7_300),
    ],
)
def test_how_far_back_is_written_in_many_ways(text: str, back_s: int) -> None:
    assert past_instant(text, PIPE.now_s, "--since", "") == PIPE.now_s + 0 - back_s


def test_a_time_of_day_and_the_names_of_days_look_back() -> None:
    now_s = PIPE.now_s
    today = midnight(now_s)
    assert today <= now_s < today + 86_400
    assert (
        past_instant("today", now_s, "-S", "") == past_instant("midnight", now_s, "-S", "") == today
    )
    assert past_instant("yesterday", now_s, "-S", "") == midnight(now_s, 1)
    assert 0 <= now_s - past_instant("00:00", now_s, "-S", "") < 86_400


def test_what_is_no_time_names_the_flag_and_the_forms() -> None:
    with pytest.raises(InvalidRequest, match=r"--until: 'soon' is not a time") as caught:
        past_instant("soon", PIPE.now_s, "--until", "write 7d")
    assert caught.value.hint == "write 7d"
    assert ended_within_s("all", PIPE.now_s, 3600) is None
    with pytest.raises(InvalidRequest, match="in the future"):
        ended_within_s("2027-01-01", PIPE.now_s, 3600)
