"""Instants: the forms of --begin and --deadline, and one way to print them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text.instants import format_instant, parse_instant

NOON_S = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
CHINA = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("now", 0),
        ("now+2hours", 7200),
        ("now + 1day", 86_400),
        ("NOW+90m", 5400),
        ("now+90", 90),
        ("noon", 86_400),
        ("midnight", 43_200),
        ("Tomorrow", 43_200),
        ("today", -43_200),
        ("13:00", 3600),
        ("12:00", 86_400),
        ("11:59:30", 86_370),
        ("2026-11-21", 43_200),
        ("2026-11-20T12:00:30", 30),
        ("2026-11-20T20:00+08:00", 0),
        ("112126", 43_200),
        ("1121", 43_200),
        ("11/21/26", 43_200),
        ("11.21.2026-01:00:30", 46_830),
        ("112026-12:00", 0),
        ("elevenses", 82_800),
        ("teatime", 14_400),
    ],
)
def test_every_form_of_slurm_and_iso_is_read(text: str, after_s: int) -> None:
    assert parse_instant(text, now_s=NOON_S, zone=UTC) == NOON_S + after_s


def test_a_date_without_a_year_is_the_next_such_day() -> None:
    new_year_s = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert parse_instant("010127", now_s=NOON_S, zone=UTC) == new_year_s
    assert parse_instant("0101", now_s=NOON_S, zone=UTC) == new_year_s
    assert parse_instant("1/1", now_s=NOON_S, zone=UTC) == new_year_s


def test_a_date_without_an_offset_is_in_the_callers_zone() -> None:
    assert parse_instant("2026-11-20T20:00", now_s=NOON_S, zone=CHINA) == NOON_S
    assert parse_instant("20:30", now_s=NOON_S, zone=CHINA) == NOON_S + 1800


@pytest.mark.parametrize(
    "text",
    [
        "",
        "25:00",
        "12:60",
        "yesterday",
        "now+",
        "now+2x",
        "2026-13-01",
        "130127",
        "0230",
        "1/1.27",
        "now-1h",
    ],
)
def test_what_is_not_an_instant_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="now\\+2hours"):
        parse_instant(text, now_s=NOON_S, zone=UTC)


@given(st.integers(0, 4_000_000_000_000))
def test_a_printed_instant_reads_back(milliseconds: int) -> None:
    text = format_instant(milliseconds / 1000)
    assert text.endswith("Z")
    assert parse_instant(text, now_s=0, zone=CHINA) == pytest.approx(milliseconds / 1000, abs=1e-4)


@given(st.text(max_size=30))
def test_any_text_is_an_instant_or_a_value_error(text: str) -> None:
    try:
        parse_instant(text, now_s=NOON_S, zone=CHINA)
    except ValueError:
        return
