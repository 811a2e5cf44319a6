"""Run the campaigns that try to break the promises of dlq about failures.

    python -m benchmarks.prove [NAME ...] [--full] [--page]

Each campaign prints what it found and keeps it in benchmarks/prove/results. `--page` writes
docs/reliability.md anew from what is kept, and runs no campaign that is not named. The exit code is
1 when a campaign failed. All that a campaign wrote stands in build/prove/NAME.log.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.prove.campaigns import CAMPAIGNS, Campaign, Command
from benchmarks.prove.page import write_page
from benchmarks.prove.results import Result
from benchmarks.support.conditions import conditions, conditions_line

LAST_LINES = 25
OUTPUT = ROOT / "build" / "prove"
NAMES = [campaign.name for campaign in CAMPAIGNS]


def main() -> None:
    """Run the named campaigns, keep their results, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--full", action="store_true", help="the full size of each")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.name if name not in NAMES]:
        sys.exit(f"no campaign {unknown[0]!r}; there are: {', '.join(NAMES)}")
    names = chosen.name or ([] if chosen.page else NAMES)
    failed = []
    for campaign in CAMPAIGNS:
        if campaign.name in names:
            result = run(campaign, full=chosen.full)
            result.keep()
            if result.failed:
                failed.append(campaign.name)
    if chosen.page:
        write_page(CAMPAIGNS)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(campaign: Campaign, *, full: bool) -> Result:
    """Run its commands one after another, until one fails."""
    print(f"\n=== {campaign.name}: {campaign.claim}", flush=True)
    told, commit = conditions_line(conditions()), _commit()
    began_s, failed = time.monotonic(), ""
    found: list[dict[str, Any]] = []
    for command in campaign.commands:
        some, failed = _run(command, OUTPUT / f"{campaign.name}.log", full=full)
        found += some
        if failed:
            print(failed, file=sys.stderr)
            break
    for each in found:
        print(json.dumps(each), flush=True)
    return Result(
        campaign=campaign.name,
        day=time.strftime("%Y-%m-%d"),
        commit=commit,
        full=full,
        took_s=round(time.monotonic() - began_s),
        conditions=told.removeprefix("conditions: "),
        found=found,
        failed=failed,
    )


def _run(command: Command, output: Path, *, full: bool) -> tuple[list[dict[str, Any]], str]:
    """Its figures, and its last lines if it failed; `output` keeps all lines of the last run."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dlq-prove-") as folder:
        proofs = Path(folder) / "proofs"
        proofs.touch()
        with output.open("w") as kept:
            done = subprocess.run(
                command.argv(full=full),
                cwd=ROOT,
                env=os.environ | command.environment(full=full) | {"DLQ_PROOFS": str(proofs)},
                stdin=subprocess.DEVNULL,
                stdout=kept,
                stderr=None if command.is_benchmark else subprocess.STDOUT,
            )
        said = output.read_text(errors="replace")
        found = [json.loads(line) for line in proofs.read_text().splitlines()]
    if done.returncode != 0:
        return found, "\n".join(said.splitlines()[-LAST_LINES:])
    if command.is_benchmark:
        report = json.loads(said)
        return [{"benchmark": report["benchmark"], "figures": report["figures"]}], ""
    return found, "" if found else "it told no figures"


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip() or "?"


if __name__ == "__main__":
    main()
