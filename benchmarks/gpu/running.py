"""Runs checks, each in a process of its own under its own limit, and takes what it tells.

A driver may hang, so this process never asks it. The process of a check appends a line to a file
for each finding, and one for its end. Its findings count, also when it has to be killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.gpu.check import (
    GOOD,
    Check,
    ClaimBroken,
    CouldNot,
    Finding,
    NoneHere,
    Outcome,
)
from benchmarks.gpu.evidence import SAID, keep, last_words
from benchmarks.gpu.machine import PATIENCE, Machine
from benchmarks.gpu.site import end_all, opened

MACHINE = Check("machine", "What it is.", (), 40, lambda site: site.machine.described())
LEAVE_S = 10.0  # for a process that is asked to end, before it is killed
LEAST_S = 5.0  # with less left no check begins
_LAST = 600  # characters of an unexpected error


@dataclass
class Result:
    """One check of a run."""

    name: str
    claim: str
    outcome: Outcome = Outcome.FAILED
    words: str = ""
    took_s: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "check": self.name, "claim": self.claim, "outcome": str(self.outcome),
            "words": self.words, "took_s": round(self.took_s, 1),
            "findings": [finding.told() for finding in self.findings],
        }  # fmt: skip


def run_check(
    check: Check, machine: Machine, limit_s: float, evidence: Path | None = None
) -> Result:
    """Run it in a process of its own, for so long at most. If it does not hold, its logs are
    copied into the directory `evidence`.
    """
    result = Result(check.name, check.claim)
    if limit_s < LEAST_S:
        result.outcome, result.words = Outcome.COULD_NOT, "no time was left"
        return result
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlq-gpu-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        code = _run(check.name, machine, root, limit_s)
        result.took_s = time.monotonic() - began_s
        _take(result, root / "told", code, limit_s)
        if code is None and limit_s < check.limit_s * PATIENCE:
            result.outcome = Outcome.COULD_NOT
            result.words = f"no more time was left: it was ended after {limit_s:g} s"
        if result.outcome not in GOOD:
            if last := last_words(root):
                result.words += f" (the agent's last words: {last})"
            if evidence is not None:
                keep(check.name, root, evidence)
    return result


def described(machine: Machine) -> list[Finding]:
    """Facts of the machine, as far as it can be asked within the limit."""
    return run_check(MACHINE, machine, MACHINE.limit_s * PATIENCE).findings


def _run(name: str, machine: Machine, root: Path, limit_s: float) -> int | None:
    """The exit code; None: it had to be ended."""
    command = [
        sys.executable, "-m", "benchmarks.gpu", "--one", name, "--root", str(root),
        "--job-python", machine.job_python, "--stand-in", machine.stand_in,
    ]  # fmt: skip
    if machine.no_torch is not None:
        command += ["--no-torch", machine.no_torch]
    with (root / SAID).open("w") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # it ends its jobs and daemons
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=LEAVE_S)
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # a driver may keep it, whatever we do
                process.wait(timeout=LEAVE_S)
            end_all(root)


def _take(result: Result, told: Path, code: int | None, limit_s: float) -> None:
    lines = told.read_text().splitlines() if told.exists() else []
    for line in lines:
        one = json.loads(line)
        if "outcome" in one:
            result.outcome, result.words = Outcome(one["outcome"]), one["words"]
            return
        result.findings.append(Finding(**one))
    if code is None:
        result.words = f"it took longer than its limit of {limit_s:g} s"
    else:
        said = (told.parent / SAID).read_text(errors="replace").strip()
        result.words = f"exit code {code}: {said[-_LAST:]}"


# ---- in the process of a check


def tell(check: Check, machine: Machine, root: Path) -> None:
    """Run it here, and append what it tells to `root`/told."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with (root / "told").open("a") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        outcome, words = Outcome.HELD, ""
        try:
            for finding in _findings(check, machine, root):
                write(finding.told())
        except (ClaimBroken, RuntimeError) as error:  # the second: a command of ours failed
            outcome, words = Outcome.FAILED, str(error)
        except CouldNot as error:
            outcome, words = Outcome.COULD_NOT, str(error)
        except NoneHere as error:
            outcome, words = Outcome.NONE_HERE, str(error)
        write({"outcome": outcome, "words": words})


def _findings(check: Check, machine: Machine, root: Path) -> Iterator[Finding]:
    if why := machine.lacks(check.needs):
        raise CouldNot(why)
    with opened(machine, root / "site") as site:
        site.root.mkdir()
        try:
            yield from check.run(site)
        except NoneHere:
            raise
        except BaseException:  # also when this process is told to end
            site.keep_outputs()
            raise
