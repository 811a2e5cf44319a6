"""The names of metrics that alerts, dashboards and pages use, and those that a page of the master
has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
PAGES = (REFERENCE, ROOT / "docs" / "running" / "monitoring.md")
DASHBOARDS = sorted((MONITORING / "grafana").glob("*.json"))
_NAME = re.compile(r"\b(?:dlq|slurm)_[a-z0-9_]+")
_ENDS = ("_bucket", "_count", "_sum")
# Words of the pages that begin like a metric.
_OTHERS = {"dlq_master", "dlq_backup"}


def alerts() -> list[dict[str, Any]]:
    """The rules that are shipped."""
    found = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard."""
    found: list[dict[str, Any]] = json.loads(dashboard.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression of an alert or a dashboard, and where it stands."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{dashboard.stem}: {panel['title']}", target["expr"]


def metrics_in(text: str, histograms: set[str]) -> set[str]:
    """The metrics that a text names: the parts of a histogram count as the histogram."""
    found = set()
    for name in _NAME.findall(text):
        base = next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), name)
        found.add(base if base in histograms else name)
    return found - _OTHERS


def documented() -> set[str]:
    """Every metric in a table of the reference."""
    rows = (line.split("|")[1] for line in REFERENCE.read_text().splitlines() if line[:3] == "| `")
    return {name for row in rows for name in re.findall(r"`((?:dlq|slurm)_\w+)", row)}


def on_page(text: str) -> dict[str, str]:
    """Metric -> kind, of a page in the text format."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
