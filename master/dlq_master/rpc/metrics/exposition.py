"""Metric families, in both formats that Prometheus reads: text 0.0.4 and OpenMetrics 1.0.

OpenMetrics also has units, an end of the page, and exemplars. Samples have the same names in both,
so that a change of the format changes no dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from math import isfinite, isnan
from typing import Final, NamedTuple

from dlq_master.control.loop.histogram import Exemplar, Histogram, Histograms
from dlq_master.control.loop.histogram import Labels as Labels

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_UNITS = ("seconds", "bytes", "ratio")
_TOTAL = "_total"
_INFO = "_info"


class MetricSample(NamedTuple):
    """One line. `suffix`: the end of its name, behind the name of the family."""

    labels: Labels
    value: float
    suffix: str = ""
    exemplar: Exemplar | None = None


class MetricFamily(NamedTuple):
    """A metric with its samples. `kind`: gauge, counter, histogram or info.

    The name of a counter ends with `_total`, that of an info with `_info`.
    """

    name: str
    kind: str
    words: str
    samples: tuple[MetricSample, ...]


def family(name: str, kind: str, words: str, samples: Mapping[Labels, float]) -> MetricFamily:
    """A metric with one sample for each set of labels."""
    told = (MetricSample(labels, value) for labels, value in sorted(samples.items()))
    return MetricFamily(name, kind, words, tuple(told))


def gauge(name: str, words: str, value: float) -> MetricFamily:
    """A metric with one sample without labels."""
    return family(name, "gauge", words, {(): value})


def by(name: str, kind: str, words: str, label: str, values: Mapping[str, float]) -> MetricFamily:
    """A metric with one label. Gauges of 0 are left out."""
    kept: dict[Labels, float] = {
        ((label, word),): n for word, n in values.items() if n or kind != "gauge"
    }
    return family(name, kind, words, kept)


def histogram(name: str, words: str, found: Histograms, *, exemplars: bool = False) -> MetricFamily:
    """A metric of histograms. `exemplars`: a job's id for each bucket, in OpenMetrics."""
    samples = (sample for labels, one in found for sample in _buckets(labels, one))
    if not exemplars:
        samples = (sample._replace(exemplar=None) for sample in samples)
    return MetricFamily(name, "histogram", words, tuple(samples))


def text_page(families: Iterable[MetricFamily]) -> str:
    """All families in the text format 0.0.4."""
    lines: list[str] = []
    for one in families:
        kind = "gauge" if one.kind == "info" else one.kind
        lines += (f"# HELP {one.name} {_escaped(one.words)}", f"# TYPE {one.name} {kind}")
        lines += [_line(one.name, sample) for sample in one.samples]
    return "\n".join([*lines, ""])


def openmetrics_page(families: Iterable[MetricFamily]) -> str:
    """All families as OpenMetrics 1.0."""
    lines: list[str] = []
    for one in families:
        name = _base(one)
        lines.append(f"# TYPE {name} {one.kind}")
        lines += [f"# UNIT {name} {unit}" for unit in _UNITS if name.endswith(f"_{unit}")]
        lines.append(f"# HELP {name} {_quoted(one.words)}")
        lines += [_line(one.name, sample) + _exemplar(sample) for sample in one.samples]
    return "\n".join([*lines, "# EOF", ""])


def wanted_format(accept: str) -> str:
    """The content type for a scraper's Accept header; TEXT if it has none."""
    weights = {TEXT: 0.0, OPENMETRICS: 0.0}
    for offer in accept.lower().split(","):
        media, *settings = (part.strip() for part in offer.split(";"))
        told = dict(part.partition("=")[::2] for part in settings)
        if media == "application/openmetrics-text" and told.get("version") in _OPEN_VERSIONS:
            weights[OPENMETRICS] = max(weights[OPENMETRICS], _weight(told.get("q")))
        elif media in ("text/plain", "text/*", "*/*"):
            weights[TEXT] = max(weights[TEXT], _weight(told.get("q")))
    return OPENMETRICS if weights[OPENMETRICS] > weights[TEXT] else TEXT


# --- helpers, in order of use ---------------------------------------------------------------------

_OPEN_VERSIONS = (None, "1.0.0", "0.0.1")


def _weight(text: str | None) -> float:
    """A quality value of HTTP; an invalid one counts as the lowest."""
    if text is None:
        return 1.0
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _buckets(labels: Labels, one: Histogram) -> Iterator[MetricSample]:
    ends = [*map(str, one.ends), "+Inf"]
    for place, (end, count) in enumerate(zip(ends, accumulate(one.counts), strict=True)):
        yield MetricSample((*labels, ("le", end)), count, "_bucket", one.exemplars.get(place))
    yield MetricSample(labels, sum(one.counts), "_count")
    yield MetricSample(labels, one.total, "_sum")


def _base(one: MetricFamily) -> str:
    """The name of the family in OpenMetrics, without the suffix of its samples."""
    if one.kind == "counter":
        return one.name.removesuffix(_TOTAL)
    return one.name.removesuffix(_INFO) if one.kind == "info" else one.name


def _line(name: str, sample: MetricSample) -> str:
    told = ",".join(f'{key}="{_quoted(text)}"' for key, text in sample.labels)
    return (
        f"{name}{sample.suffix}{{{told}}} {_number(sample.value)}"
        if told
        else (f"{name}{sample.suffix} {_number(sample.value)}")
    )


def _exemplar(sample: MetricSample) -> str:
    if sample.exemplar is None:
        return ""
    job_id, value, at_s = sample.exemplar
    return f' # {{job_id="{job_id}"}} {_number(value)} {at_s:.3f}'


def _number(value: float) -> str:
    """A number with all its digits: a rounded counter would seem to stand still."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "+Inf" if value > 0.0 else "-Inf"
    whole = int(value)
    return str(whole) if whole == value else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
