"""Checks of `make gpu` on one site: `python gpu_one_site.py DIRECTORY CHECK ...`.

The last line is JSON: `held` for each check, or what broke it. Each check begins without jobs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.gpu.check import ClaimBroken, CouldNot, NoneHere
from benchmarks.gpu.checks.registry import CHECKS
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.site import opened


def main() -> None:
    """Run them until one does not hold."""
    root, names = Path(sys.argv[1]), sys.argv[2:]
    told: dict[str, str] = {}
    with opened(Machine(sys.executable, "numpy"), root / "site") as site:
        site.root.mkdir()
        for check in (check for check in CHECKS if check.name in names):
            try:
                found = list(check.run(site))
                site.end_jobs()
            except (ClaimBroken, CouldNot, NoneHere, RuntimeError) as error:
                told[check.name] = f"{type(error).__name__}: {error}"
                break
            told[check.name] = "held" if found else "nothing was found"
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
