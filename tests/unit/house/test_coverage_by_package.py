"""Coverage is told by package, the least covered first."""

from __future__ import annotations

import pytest

from support.coverage_by_package import Executed, by_package


def summary(statements: int, covered: int, branches: int = 0, taken: int = 0) -> dict[str, int]:
    return {
        "num_statements": statements,
        "covered_lines": covered,
        "num_branches": branches,
        "covered_branches": taken,
    }


def test_files_of_a_package_are_told_together_and_the_least_covered_comes_first() -> None:
    told = by_package(
        [
            ("master/dlq_master/policy/turn.py", summary(10, 9, 4, 3)),
            ("master/dlq_master/policy/legal/check.py", summary(6, 6)),
            ("master/dlq_master/app.py", summary(8, 2)),
        ]
    )
    assert list(told) == ["dlq_master", "dlq_master/policy"]
    assert told["dlq_master/policy"] == Executed(20, 18)
    assert told["dlq_master"].percent == pytest.approx(25.0)


def test_a_package_without_statements_lacks_nothing() -> None:
    assert Executed().percent == 100.0
