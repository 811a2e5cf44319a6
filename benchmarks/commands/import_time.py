"""`import dlq`, and the first use of `dlq.connect`, by the interpreter's own count of imports.

    python -m benchmarks.commands.import_time [--runs N] [--json]

Goal: less than 100 ms for `import dlq`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report

_LINE = re.compile(r"import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)")


def main() -> None:
    """Import in new processes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    report = Report.begin("commands.import_time", parser)
    runs = report.options.runs
    for what, program, modules, goal in (
        ("import dlq", "import dlq", ("dlq",), 100.0),
        (
            "what connect needs",
            "import dlq; import dlq_api.cluster",
            ("dlq", "dlq_api.cluster"),
            None,
        ),
    ):
        took = [_imported_ms(program, modules) for _ in range(runs)]
        report.figure(
            f"{what}, median of {runs}", percentile(took, 0.5), "ms", at_most=goal,
            note=f"{min(took):.1f} to {max(took):.1f} ms",
        )  # fmt: skip
    report.end()


def _imported_ms(program: str, modules: tuple[str, ...]) -> float:
    """The time of these imports, with all that they import."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    spent = {name: int(us) for us, name in _LINE.findall(done.stderr)}
    return sum(spent[module] for module in modules) / 1e3


if __name__ == "__main__":
    main()
