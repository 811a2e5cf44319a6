"""All benchmarks, one after another, each with its conditions: `make bench`.

python -m benchmarks.run [NAME...]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# One command per claim; each prints ratio, bound or percentile with its conditions.
NAMES = ("tick", "submits", "starts", "status", "restart", "simulate")


def main() -> None:
    """Run those that are named, or all; the exit code says whether each of them ran."""
    wanted = sys.argv[1:] or NAMES
    failed = []
    for name in wanted:
        if name not in NAMES:
            sys.exit(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
        print(f"\n=== {name}", flush=True)
        if subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT, check=False
        ).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
