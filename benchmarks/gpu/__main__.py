"""Show dlq on the GPUs of this host, within eight minutes: `make gpu`.

    python -m benchmarks.gpu [CHECK ...] [--out DIR] [--job-python PROGRAM] [--stand-in NAME]
    python -m benchmarks.gpu --take FILE

Results go to DIR/proof.json and DIR/proof.md, anew after each check. A run on real GPUs is also
kept in benchmarks/gpu/results, and docs/gpu-proof.md is written. `--take` keeps the proof.json of a
run elsewhere. The exit code is 1 if a claim failed or a check could not be made. The last lines
name each of these, and each goal that was missed. Of a check that did not hold, DIR/logs has the
logs. GPU_PATIENCE=3 makes all limits three times as long, for a busy host. GPU_COMMIT names the
commit of a tree without .git.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from benchmarks import ROOT
from benchmarks.gpu.check import Check
from benchmarks.gpu.checks.registry import CHECKS, WHOLE_S
from benchmarks.gpu.machine import PATIENCE, STAND_INS, Machine, interpreter
from benchmarks.gpu.page import write_page
from benchmarks.gpu.proof import Proof, kept
from benchmarks.gpu.running import LEAVE_S, MACHINE, described, run_check, tell

NAMES = [check.name for check in CHECKS]


def main() -> None:
    """Run the named checks, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", nargs="*", metavar="CHECK", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--job-python", default="", help="it has PyTorch (default: python3)")
    parser.add_argument("--stand-in", default="", choices=("", *STAND_INS))
    parser.add_argument("--take", type=Path, metavar="FILE")
    parser.add_argument("--no-torch", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.name if name not in NAMES]:
        sys.exit(f"no check {unknown[0]!r}; there are: {', '.join(NAMES)}")
    python = interpreter(chosen.job_python, chosen.stand_in)
    machine = Machine(python, chosen.stand_in, chosen.no_torch)
    if chosen.one:
        tell(_named(chosen.one), machine, chosen.root)
    elif chosen.take:
        try:
            kept(json.loads(chosen.take.read_text()))
        except (OSError, ValueError) as error:
            sys.exit(f"{chosen.take}: {error}")
        write_page()
    else:
        sys.exit(run(machine, chosen.name or NAMES, chosen.out))


def run(machine: Machine, names: list[str], out: Path) -> int:
    """The exit code."""
    end_s = time.monotonic() + WHOLE_S * PATIENCE
    proof = Proof(described(machine), machine.stand_in)
    machine = machine.knowing(proof.machine)
    proof.write(out)
    shutil.rmtree(out / "logs", ignore_errors=True)
    due_s = time.monotonic()
    for check in CHECKS:
        if check.name not in names:
            continue
        print(f"{check.name}: {check.claim}", flush=True)
        own_s, now_s = check.limit_s * PATIENCE, time.monotonic()
        due_s += own_s  # what the ones before did not need, it may use
        limit_s = min(max(own_s, due_s - now_s), end_s - now_s - LEAVE_S)
        result = run_check(check, machine, limit_s, out)
        proof.results.append(result)
        proof.write(out)
        print(f"  {result.outcome} after {result.took_s:.1f} s {result.words}".rstrip())
        for finding in result.findings:
            missed = f"  (goal {finding.at_most:g}: missed)" if finding.missed else ""
            print(f"    {finding.name}: {finding.value} {finding.unit}".rstrip() + missed)
    return _end(proof, out, whole=names == NAMES)


def _end(proof: Proof, out: Path, *, whole: bool) -> int:
    print(f"\n{out}/proof.md has the table, and {out}/proof.json all of it.")
    if whole:
        try:
            print(f"kept as {proof.keep()}")
            write_page()
        except ValueError as error:
            print(f"not kept: {error}")
    for name, finding in proof.missed():
        goal = f"{finding.at_most:g} {finding.unit}".strip()
        print(f"GOAL MISSED: {name}, {finding.name}: {finding.value}, and the goal is {goal}")
    undone = proof.undone()
    for result in undone:
        print(f"NOT SHOWN: {result.name}, {result.outcome}: {result.words}")
    return 1 if undone else 0


def _named(name: str) -> Check:
    return next(check for check in (MACHINE, *CHECKS) if check.name == name)


if __name__ == "__main__":
    main()
