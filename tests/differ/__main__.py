"""Asks both sides all calls, and prints what differs."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from differ.calls import CALLS
from differ.compare import TOLD, UNTOLD, Verdict, judge, unused
from differ.normal import normal_answer, normaliser
from differ.page import PAGE, page
from differ.pair import Answer, Side, dlq_side, slurm_side
from differ.world import prepare
from support.accounted_slurm import missing
from support.host_account import free_name, host_account

RECORD = Path(__file__).parents[1] / "data" / "slurm_answers.json"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> int:
    """The exit code: 1 if something is unexplained, or an explanation explains nothing."""
    parser = argparse.ArgumentParser(prog="python -m differ", description=__doc__)
    parser.add_argument("--all", action="store_true", help="print all pairs, also equal ones")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    asked = parser.parse_args()
    if why := missing():
        sys.stderr.write(f"differ: {why}\n")
        return 2
    root = Path(tempfile.mkdtemp(prefix="dlqdiff", dir="/tmp"))
    os.chmod(root, 0o755)
    try:
        with (
            host_account(free_name("s")) as who,
            dlq_side(root, who) as dlq,
            slurm_side(root, who) as slurm,
        ):
            return _compare(root, slurm, dlq, asked)
    finally:
        shutil.rmtree(root)


def _compare(root: Path, slurm: Side, dlq: Side, asked: argparse.Namespace) -> int:
    verdicts: list[Verdict] = []
    recorded = []
    assert prepare(slurm) == prepare(dlq), "other words, or other ids"
    of_slurm, of_dlq = normaliser(slurm, root), normaliser(dlq, root)
    for call in CALLS:
        theirs, ours = slurm.said(call), dlq.said(call)
        left, right = normal_answer(theirs, of_slurm), normal_answer(ours, of_dlq)
        verdict = judge(call, left, right, raw_equal=theirs == ours)
        verdicts.append(verdict)
        recorded.append({"call": call, **left._asdict()})
        if asked.all or verdict.kind == UNTOLD:
            _print(call, verdict, left, right)
    if asked.record:
        PAGE.write_text(page())
        RECORD.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")
    return _sum_up(verdicts)


def _print(call: str, verdict: Verdict, theirs: Answer, ours: Answer) -> None:
    _say(f"=== {call}   [{verdict.kind}]")
    if theirs.code != ours.code:
        _say(f"exit code: Slurm {theirs.code}, dlq {ours.code}")
    for name in ("out", "err"):
        left, right = getattr(theirs, name).splitlines(), getattr(ours, name).splitlines()
        lines = difflib.unified_diff(left, right, "Slurm", "dlq", lineterm="", n=0)
        _say("\n".join(line for line in lines if not line.startswith("@@")))


def _sum_up(verdicts: list[Verdict]) -> int:
    counts = Counter(verdict.kind for verdict in verdicts)
    _say(f"{len(verdicts)} calls: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    reasons = Counter(entry.reason for one in verdicts if one.kind == TOLD for entry in one.by)
    for reason, count in reasons.most_common():
        _say(f"  {count:4d} {reason}")
    idle = unused(verdicts)
    for entry in idle:
        _say(f"explains nothing: {entry.reason}")
    return int(bool(counts[UNTOLD] or idle))


if __name__ == "__main__":
    sys.exit(main())
