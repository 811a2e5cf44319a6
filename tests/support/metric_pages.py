"""Reads pages of metrics: samples by name and labels, and the rules of both formats."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlq_master.control.loop.meter import Meter
from dlq_master.control.read_model.published import Published
from dlq_master.rpc.metrics.exposition import MetricFamily, text_page
from dlq_master.rpc.metrics.page import cluster_families
from dlq_master.rpc.metrics.work import flow_families

SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)'
    r'( # \{job_id="\d+"\} \S+ \d+\.\d{3})?'
)


def samples(text: str) -> dict[str, float]:
    """Each sample of a page, by its name with its labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        read = SAMPLE.fullmatch(line)
        assert read is not None, line
        name = f"{read[1]}{read[2] or ''}"
        assert name not in found, f"{name} is there twice"
        found[name] = float(read[3])
    return found


def told(families: Iterable[MetricFamily]) -> dict[str, float]:
    """The samples of some families."""
    return samples(text_page(families))


def page_of(read: Published, meter: Meter | None = None) -> dict[str, float]:
    """The figures of the cluster and of its jobs."""
    return told([*cluster_families(read, meter or Meter()), *flow_families(read)])


def families_of(text: str) -> dict[str, str]:
    """The kind of each metric of a page, by its name."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
