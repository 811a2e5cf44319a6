"""Durations and sizes: every documented form, and every form reads back what it printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * 60),
        ("0", 0),
        ("5:30", 330),
        ("100:00", 6000),
        ("1:00:00", 3600),
        ("36:00:00", 129_600),
        ("2-0", 172_800),
        ("1-6", 108_000),
        ("1-06:30", 109_800),
        ("1-06:30:15", 109_815),
        ("0:300", 300),  # Slurm's programs write such ones
        ("1:90:00", 9000),
        ("1-25:00", 176_400),
        ("1-2:75", 98_100),
        ("90m", 5400),
        ("90min", 5400),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("30s", 30),
        ("1.5h", 5400),
        (" 90m ", 5400),
    ],
)
def test_a_duration_is_read_in_slurms_forms_and_with_units(text: str, seconds: int) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-5",
        "1:2:3:4",
        "5x",
        "1h30",
        "m",
        "٣m",
        "٩٠",
        "1e3s",
        "90;m",
        "nan",
        "inf",
        "9" * 5000,
        "99999999w",
        "1-",
        "-1-0",
        "1h 30m",
        "1\n"[::-1] + "x",
    ],
)
def test_what_is_not_a_duration_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|century") as refused:
        units.parse_duration(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["0", "unlimited", "UNLIMITED", "infinite", "0s", "0:00", "0-0"])
def test_zero_and_the_words_for_it_mean_no_limit(text: str) -> None:
    assert units.parse_time_limit(text) is None


def test_a_day_prints_as_slurm_prints_it() -> None:
    assert units.format_duration(86_400) == "1-00:00:00"
    assert units.format_duration(3_661.9) == "01:01:01"
    assert units.format_duration(-5) == "00:00:00"


@given(st.integers(0, units.LONGEST_DURATION_S))
def test_a_printed_duration_reads_back(seconds: int) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds
    assert units.parse_duration(units.format_span(seconds)) == seconds


@given(st.integers(0, units.LONGEST_DURATION_S * 1000))
def test_a_printed_span_loses_nothing_down_to_the_millisecond(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert units.parse_span(units.format_span(seconds)) == pytest.approx(seconds, abs=1e-6)


@given(st.text(max_size=30))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    for parse in (units.parse_duration, units.parse_span, units.parse_time_limit):
        try:
            seconds = parse(text)
        except ValueError:
            continue
        assert seconds is None or 0 <= seconds <= units.LONGEST_DURATION_S


@pytest.mark.parametrize("text", ["5", "5:00", "", "s"])
def test_a_span_must_name_its_unit(text: str) -> None:
    with pytest.raises(ValueError, match="30s"):
        units.parse_span(text)


def test_a_span_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        units.format_span(-1)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("80G", 80 * 2**30),
        ("1.5TiB", 3 * 2**39),
        ("512M", 2**29),
        ("64 gib", 2**36),
        ("7B", 7),
        ("0.1KB", 100),
        ("0B", 0),
    ],
)
def test_gb_is_decimal_gib_is_binary_and_slurms_g_is_binary(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "80", "GB", "-1GB", "1e3GB", "80XB", "٨GB", "9EiB", "9" * 5000 + "B"]
)
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|machine"):
        units.parse_size(text)


@given(st.integers(0, units.LARGEST_SIZE_BYTES))
def test_a_printed_size_reads_back_exactly(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.integers(0, units.LARGEST_SIZE_BYTES - 2**60))
def test_an_approximate_size_is_near(size: int) -> None:
    near = units.parse_size(units.approximate_size(size))
    assert abs(near - size) <= max(size * 0.06, 0)


def test_sizes_print_in_the_unit_people_expect() -> None:
    assert units.format_size(80 * 2**30) == "80GiB"
    assert units.format_size(1000) == "1000B"
    assert units.approximate_size(85_520_809_984) == "79.6GiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3.9, "3 s"), (60, "1 min"), (725, "12 min 5 s"), (11_520, "3 h 12 min"), (187_200, "2 d 4 h")],  # noqa: E501
)  # fmt: skip
def test_a_span_for_sentences_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert units.approximate_span(seconds) == text
