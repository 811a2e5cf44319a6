"""No benchmark is forgotten: each module is a command that `benchmarks.run` knows, or a part of
one.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.run import NAMES, ONLY_BY_NAME

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
MODULES = {
    ".".join(path.relative_to(BENCHMARKS).with_suffix("").parts): path.read_text()
    for path in BENCHMARKS.rglob("*.py")
    if path.name != "__init__.py"
}
MAIN = ".__main__"
PRINTS_A_TABLE = {"papers.profiling"}  # a command without goals: docs/policies/reproduction
CASES = "reproduce.cases."  # the registry takes every module of that folder


def test_each_command_with_a_report_can_be_run_by_its_name() -> None:
    assert {"growth", "race", "planning.tick", "live.agents", "papers.matrix"} < set(NAMES)
    assert set(ONLY_BY_NAME) < set(NAMES)
    assert "run" not in NAMES
    for name in NAMES:
        text = MODULES.get(name) or MODULES[name + MAIN]
        assert 'if __name__ == "__main__":' in text, name
    assert len(NAMES) == len(set(NAMES))


def test_each_other_module_is_named_by_another_one() -> None:
    parts = set(MODULES) - PRINTS_A_TABLE - {*NAMES, *(name + MAIN for name in NAMES), "run"}
    parts = {part for part in parts if not part.startswith(CASES)}
    alone = {
        part
        for part in parts
        if not any(
            re.search(rf"\b{part.rpartition('.')[2]}\b", text)
            for module, text in MODULES.items()
            if module != part
        )
    }
    assert alone == set()
