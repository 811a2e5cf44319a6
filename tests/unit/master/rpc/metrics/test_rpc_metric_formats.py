"""The two formats of /metrics, and which of them a scraper gets."""

from __future__ import annotations

import math

import pytest

from dlq_master.control.loop.histogram import Histograms
from dlq_master.rpc.metrics.exposition import (
    OPENMETRICS,
    TEXT,
    MetricFamily,
    MetricSample,
    family,
    gauge,
    histogram,
    openmetrics_page,
    text_page,
    wanted_format,
)
from support.metric_pages import samples

# As Prometheus 2.42 and 3.5 ask, and curl.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        (PROMETHEUS, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.8", TEXT),
        ("Application/OpenMetrics-Text; Version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text;q=nonsense", TEXT),
        (";;,=,;q=", TEXT),
    ],
)
def test_the_format_is_the_one_that_the_scraper_prefers(accept: str, wanted: str) -> None:
    assert wanted_format(accept) == wanted


def some() -> list[MetricFamily]:
    waits = Histograms((1.0, 60.0), "queue")
    waits.of("a").observe(0.5)
    waits.of("a").observe(90.0, 17, 1_800_000_000.0)
    return [
        gauge("dlq_free_bytes", 'Room in "bytes".', 123_456_789_012.0),
        family("dlq_events_total", "counter", "Events.", {(("kind", 'a"b\\c\nd'),): 1_234_567}),
        family("dlq_build_info", "info", "The version.", {(("version", "1"),): 1}),
        histogram("dlq_wait_seconds", "Waits.", waits, exemplars=True),
    ]


def test_text_has_all_digits_and_escaped_labels() -> None:
    text = text_page(some())
    assert "# TYPE dlq_build_info gauge\n" in text
    assert 'dlq_events_total{kind="a\\"b\\\\c\\nd"} 1234567\n' in text
    assert samples(text)["dlq_free_bytes"] == 123_456_789_012
    assert 'dlq_wait_seconds_bucket{queue="a",le="+Inf"} 2\n' in text
    assert "# EOF" not in text
    assert "job_id" not in text


def test_openmetrics_has_units_exemplars_and_an_end() -> None:
    text = openmetrics_page(some())
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1
    assert "# TYPE dlq_events counter\n" in text
    assert "# TYPE dlq_build info\n" in text
    assert "# UNIT dlq_free_bytes bytes\n" in text
    assert "# UNIT dlq_wait_seconds seconds\n" in text
    assert '# HELP dlq_free_bytes Room in \\"bytes\\".\n' in text
    last = 'dlq_wait_seconds_bucket{queue="a",le="+Inf"} 2 # {job_id="17"} 90 1800000000.000\n'
    assert last in text
    assert samples(text).keys() == samples(text_page(some())).keys()


def test_an_exemplar_is_shown_only_where_jobs_may_be_named() -> None:
    waits = Histograms((1.0,))
    waits.of().observe(2.0, 17, 5.0)
    hidden = openmetrics_page([histogram("dlq_wait_seconds", "Waits.", waits)])
    assert "job_id" not in hidden


def test_a_sample_without_labels_has_no_braces() -> None:
    one = MetricFamily("dlq_x", "gauge", "X.", (MetricSample((), 0.5),))
    assert text_page([one]) == "# HELP dlq_x X.\n# TYPE dlq_x gauge\ndlq_x 0.5\n"


@pytest.mark.parametrize(
    ("value", "told"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")]
)
def test_one_endless_value_does_not_take_the_page_away(value: float, told: str) -> None:
    one = MetricFamily("dlq_x", "gauge", "X.", (MetricSample((), value),))
    for page in (text_page([one]), openmetrics_page([one])):
        assert f"\ndlq_x {told}" in page
