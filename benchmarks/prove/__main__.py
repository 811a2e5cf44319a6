"""Run the campaigns that try to break the promises of dlq about failures.

    python -m benchmarks.prove [NAME ...] [--full] [--part 3/10] [--page]
    python -m benchmarks.prove world --take FILE ... --commit COMMIT

Each campaign prints what it found and keeps it in benchmarks/prove/results. `--page` writes
docs/reliability.md anew from what is kept, and runs no campaign that is not named. The exit code is
1 when a campaign failed or missed one of its bounds (goals.py). `--part` runs some of the full form
and keeps it beside the other parts; `--take` keeps parts that other runs have left in files of
DLQ_PROOFS. All that a campaign wrote stands in build/prove/NAME.log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.prove.bounds import judged
from benchmarks.prove.campaigns import CAMPAIGNS, Campaign, Command
from benchmarks.prove.page import write_page
from benchmarks.prove.parts import Part, PartRefused, summed, told_part, with_part
from benchmarks.prove.results import Result, kept
from benchmarks.support.conditions import commit_name, conditions, conditions_line

LAST_LINES = 25
OUTPUT = ROOT / "build" / "prove"
NAMES = [campaign.name for campaign in CAMPAIGNS]


def main() -> None:
    """Run the named campaigns, keep their results, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--full", action="store_true", help="the full size of each")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md")
    parser.add_argument("--part", metavar="K/N", help="the K-th of N parts of the full form")
    parser.add_argument("--take", nargs="+", metavar="FILE", default=(), help="parts of other runs")
    parser.add_argument("--commit", help="of the parts that are taken")
    parser.add_argument("--day", default=time.strftime("%Y-%m-%d"), help="of those parts")
    parser.add_argument("--took-s", type=int, default=0, help="of parts that do not say it")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.name if name not in NAMES]:
        sys.exit(f"no campaign {unknown[0]!r}; there are: {', '.join(NAMES)}")
    names = chosen.name or ([] if chosen.page else NAMES)
    failed, missed = [], []
    for campaign in CAMPAIGNS:
        if campaign.name in names:
            try:
                result = _found(campaign, chosen)
            except PartRefused as refused:
                sys.exit(f"{campaign.name}: {refused}")
            result.keep()
            if result.failed:
                failed.append(campaign.name)
            missed += told_bounds(campaign, result)
    if chosen.page:
        write_page(CAMPAIGNS)
    if failed or missed:
        names = f"failed: {', '.join(failed)}\n" if failed else ""
        sys.exit(names + "\n".join(missed))


def told_bounds(campaign: Campaign, result: Result) -> list[str]:
    """Print each bound of a run with its verdict; return the missed ones, in words."""
    verdicts = judged(campaign.bounds, result.found, full=result.full)
    for each in verdicts:
        print(f"{campaign.name}: {each}", flush=True)
    return [f"{campaign.name}: {each}" for each in verdicts if each.missed]


def _found(campaign: Campaign, chosen: argparse.Namespace) -> Result:
    """Of a run, of a part of one, or of parts that were run elsewhere."""
    if chosen.take:
        if not chosen.commit:
            raise PartRefused("--commit has to say where these parts were run")
        result = kept(campaign.name)
        for path in chosen.take:
            part = told_part(Path(path), chosen.commit, chosen.day, chosen.took_s)
            result = with_parts(campaign, result, part)
        assert result is not None
        return result
    if chosen.part:
        return with_parts(campaign, kept(campaign.name), run_part(campaign, chosen.part))
    return run(campaign, full=chosen.full)


def run_part(campaign: Campaign, words: str) -> Part:
    """Run a part of its full form: `words` is K/N. Raises PartRefused for one that has none."""
    of_it = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", words)
    if of_it is None:
        raise PartRefused(f"{words!r} is no part: say 3/10 for the third of ten")
    (command,) = campaign.commands
    if not command.whole():
        raise PartRefused("its full form is one piece")
    part = command.part(int(of_it[1]), int(of_it[2]))
    size, seed = int(part.full[part.size]), int(part.full["SEED"])
    if not size:
        raise PartRefused(f"{words} of {command.whole()} is nothing")
    done = run(replace(campaign, commands=(part,)), full=True)
    return Part(
        seed, size if command.many_seeds else 1, size, done.commit, done.day, done.took_s,
        done.found, done.failed,
    )  # fmt: skip


def with_parts(campaign: Campaign, before: Result | None, part: Part) -> Result:
    """The result of all parts so far, this one among them. Raises PartRefused."""
    parts = with_part([] if before is None else before.parts, part)
    failed = [f"seed {each.first_seed}: {each.failed}" for each in parts if each.failed]
    whole = sum(command.whole() for command in campaign.commands)
    return Result(
        campaign=campaign.name,
        day=max(each.day for each in parts),
        commit=part.commit,
        full=sum(each.size for each in parts) >= whole,
        took_s=sum(each.took_s for each in parts),
        conditions=conditions_line(conditions()).removeprefix("conditions: "),
        found=summed(parts),
        failed="\n".join(failed),
        parts=parts,
    )


def run(campaign: Campaign, *, full: bool) -> Result:
    """Run its commands one after another, until one fails."""
    print(f"\n=== {campaign.name}: {campaign.claim}", flush=True)
    told, commit = conditions_line(conditions()), commit_name()
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


if __name__ == "__main__":
    main()
