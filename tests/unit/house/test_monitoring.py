"""The alert rules and dashboards that are shipped: complete, linked to their remedies, tested."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from support.metric_names import DASHBOARDS, MONITORING, ROOT, alerts, panels

RULES = {rule["alert"]: rule for rule in alerts()}


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).lower()) for text in headings}


def test_there_are_alerts_each_with_its_words_and_its_severity() -> None:
    assert len(RULES) == 26
    for rule in RULES.values():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


@pytest.mark.parametrize("name", RULES)
def test_the_runbook_of_an_alert_is_a_heading_that_names_it(name: str) -> None:
    page, _, anchor = RULES[name]["annotations"]["runbook_url"].partition("#")
    assert anchor in anchors_of(ROOT / page)
    assert name.lower() in anchor.split("-")


def test_each_alert_is_tested_with_a_fault_and_without_one() -> None:
    found = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())
    fires: dict[str, list[bool]] = {name: [] for name in RULES}
    for test in found["tests"]:
        for one in test["alert_rule_test"]:
            fires[one["alertname"]].append(bool(one["exp_alerts"]))
    assert fires == {name: [True, False] for name in RULES}


def test_there_are_three_dashboards() -> None:
    assert [one.stem for one in DASHBOARDS] == ["operators", "scheduler", "users"]
    boards = [json.loads(one.read_text()) for one in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == 3


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_imports(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["schemaVersion"] >= 36
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "job"}
    found = panels(path)
    assert len({panel["id"] for panel in found}) == len(found)
    assert len({panel["title"] for panel in found}) == len(found)
    for panel in found:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert 'job="$job"' in target["expr"], panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")")


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_panel_lies_over_another_one_or_beside_the_board(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(path):
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
