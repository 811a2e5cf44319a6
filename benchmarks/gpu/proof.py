"""One run: its result file, written anew after each check, and its table in Markdown."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.gpu.check import GOOD, Finding, Outcome
from benchmarks.gpu.running import Result
from benchmarks.support.conditions import UNKNOWN_COMMIT, commit_name

SCHEMA = "dlq.gpu-proof.v1"
FOLDER = ROOT / "benchmarks" / "gpu" / "results"
COMMIT = "GPU_COMMIT"  # names the commit of a tree without .git


@dataclass
class Proof:
    """A run on one machine; `stand_in` is empty where its GPUs are real."""

    machine: Sequence[Finding]
    stand_in: str = ""
    day: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    commit: str = field(default_factory=lambda: os.environ.get(COMMIT) or commit_name())
    results: list[Result] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "schema": SCHEMA, "day": self.day, "commit": self.commit, "stand_in": self.stand_in,
            "machine": {finding.name: finding.value for finding in self.machine},
            "checks": [result.told() for result in self.results],
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """The file and the table as they are now."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.told(), indent=1) + "\n"
        for name, content in (("proof.json", text), ("proof.md", table(self.told()))):
            fresh = folder / f".{name}"
            fresh.write_text(content)
            fresh.replace(folder / name)

    def undone(self) -> list[Result]:
        """The checks that show nothing, or the contrary."""
        return [result for result in self.results if result.outcome not in GOOD]

    def missed(self) -> list[tuple[str, Finding]]:
        """The goals that were missed, with the names of their checks."""
        return [
            (result.name, finding)
            for result in self.results
            for finding in result.findings
            if finding.missed
        ]

    def keep(self) -> Path:
        """Put it into the repository, in the place of the last one of this device and driver."""
        return kept(self.told())


def kept(told: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Put a run into the repository. ValueError: it proves nothing of a GPU.

    A run of some checks takes the place of these checks in the kept run of the same device, driver
    and commit. Beside a kept run of another commit it is refused.
    """
    machine = told.get("machine", {})
    if told.get("schema") != SCHEMA:
        raise ValueError(f"it is no {SCHEMA}")
    if told["stand_in"] or not machine.get("device"):
        raise ValueError("it was not run on a GPU")
    if not any(one["outcome"] == Outcome.HELD for one in told["checks"]):
        raise ValueError("no check has shown anything")
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9.]+", "-", f"{machine['device']}-{machine['driver']}".lower())
    path = folder / f"{name}.json"
    if path.exists():
        told = _merged(json.loads(path.read_text()), told)
    path.write_text(json.dumps(told, indent=1) + "\n")
    return path


def _merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    fresh = {one["check"]: one for one in now["checks"]}
    names = [one["check"] for one in before["checks"]]
    if fresh.keys() >= set(names):
        return now
    if now["commit"] != before["commit"] or now["commit"] == UNKNOWN_COMMIT:
        raise ValueError(
            f"it has {len(fresh)} checks at commit {now['commit']}; the kept run has {len(names)} "
            f"at {before['commit']}. Run all of them, or these at that commit"
        )
    added = [one for name, one in fresh.items() if name not in names]
    checks = [fresh.get(one["check"], one) for one in before["checks"]]
    return {**now, "checks": [*checks, *added]}


def table(told: Mapping[str, Any]) -> str:
    """A run in Markdown: a line for each check, and its findings."""
    machine = told["machine"]
    facts = [f"{name} {value}" for name, value in machine.items() if name != "stand-in"]
    lines = [
        f"Run on {told['day']} at commit {told['commit']}: {', '.join(facts) or 'no GPU'}.", "",
    ]  # fmt: skip
    if told["stand_in"]:
        lines[:0] = [f"**Stand-in `{told['stand_in']}`: this run proves nothing of a GPU.**", ""]
    lines += ["| check | claim | outcome | seconds |", "| --- | --- | --- | --- |"]
    for one in told["checks"]:
        words = f": {_cell(one['words'])}" if one["words"] else ""
        outcome = f"**{one['outcome']}**" if one["outcome"] == "failed" else one["outcome"]
        row = [one["check"], _cell(one["claim"]), outcome + words, f"{one['took_s']:g}"]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "| check | finding | value |", "| --- | --- | --- |"]
    for one in told["checks"]:
        for finding in one["findings"]:
            row = [one["check"], _cell(finding["name"]), _value(Finding(**finding))]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _value(finding: Finding) -> str:
    value = finding.value
    text = f"{value:,.6g}" if isinstance(value, float) else _cell(str(value))
    text = f"{text} {finding.unit}".strip()
    if finding.at_most is None:
        return text
    return f"{text} (goal: {finding.at_most:g}{', missed' if finding.missed else ''})"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
