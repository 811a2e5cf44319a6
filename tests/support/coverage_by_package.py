"""Prints the share of lines and branches that the last measured test run has executed, by package.

    python tests/support/coverage_by_package.py     after `make test-long`

Exit code 1 if nothing was measured.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coverage import Coverage
from coverage.exceptions import CoverageException


class Executed(NamedTuple):
    """Statements and branches: how many there are, and how many of them were executed."""

    all: int = 0
    executed: int = 0

    def with_file(self, totals: Mapping[str, Any]) -> Executed:
        """The same with one file more; `totals`: the summary of the file in coverage's JSON."""
        every = totals["num_statements"] + totals.get("num_branches", 0)
        executed = totals["covered_lines"] + totals.get("covered_branches", 0)
        return Executed(self.all + every, self.executed + executed)

    @property
    def percent(self) -> float:
        return 100.0 * self.executed / self.all if self.all else 100.0


def by_package(files: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Executed]:
    """Package, two levels deep (`dlq_master/policy`) -> what was executed, the least first."""
    found: defaultdict[str, Executed] = defaultdict(Executed)
    for name, totals in files:
        inside = Path(name).parts
        at = next(n for n, part in enumerate(inside) if part.startswith("dlq_"))
        package = "/".join(inside[at : at + 2] if len(inside) > at + 2 else inside[at : at + 1])
        found[package] = found[package].with_file(totals)
    return dict(sorted(found.items(), key=lambda item: (item[1].percent, item[0])))


def main() -> int:
    measured = Coverage()
    try:
        measured.load()
        report = Path(measured.config.data_file).parent / "report.json"
        measured.json_report(outfile=str(report))
    except CoverageException as error:
        print(f"nothing was measured ({error}): run make test-long first", file=sys.stderr)
        return 1
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    packages = by_package((name, one["summary"]) for name, one in files.items())
    for package, executed in packages.items():
        print(f"{executed.percent:5.1f} %  {executed.all:6}  {package}")
    every = Executed(
        sum(one.all for one in packages.values()), sum(one.executed for one in packages.values())
    )
    print(f"{every.percent:5.1f} %  {every.all:6}  all lines and branches")
    return 0


if __name__ == "__main__":
    sys.exit(main())
