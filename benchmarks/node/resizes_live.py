"""How long a job under torchrun trains nothing for a resize, live and by a restart.

    python -m benchmarks.node.resizes_live [--count N] [--mib N] [--json]

A real master under the default policy, two agents with a GPU each, and PyTorch (.venv-torch: make
e2e) on one node or two. The job gives one back when another job comes, and grows again when that
has gone. From the step after which all ranks stop to the first step of the others; the job's own
save and load are taken off. The rest holds the ends of processes, the rendezvous, and starts. By a
restart torchrun and the workers each import torch; live only the workers do. So the time of that
import stands beside it. There is no goal: it is torchrun's time, and says when live is worth it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks import ROOT
from benchmarks.node.resizes import SETTINGS
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report

TORCH = ROOT / ".venv-torch" / "bin"
JOB = Path(__file__).with_name("live_job.py")
PATIENCE_S = 300.0
IMPORTS = 5


class Down(NamedTuple):
    """Of one resize, in seconds: from the last step to the next, without save and load."""

    world: int  # processes from then on
    whole_s: float
    beyond_s: float


def measured(living: Living, mode: str, count: int, mib: int) -> list[Down]:
    """The downtimes of this number of resizes of a job."""
    notes, kept = living.root / f"notes-{mode}", living.root / f"kept-{mode}"
    kept.mkdir()
    words = (
        "dlq", "submit", "--parsable", "--gpus-per-node", "1", "--elastic", "1:2", "--elastic-mode", mode,  # noqa: E501
        "--checkpoint-preset", "torchrun", "--checkpoint-dir", str(kept), "--checkpoint-marker", "ckpt-*.pt",  # noqa: E501
        "--workdir", "/tmp", "--", str(TORCH / "torchrun"), str(JOB), str(notes), str(kept), str(mib),  # noqa: E501
    )  # fmt: skip
    job, other = living.run(*words).strip(), ""
    _until(lambda: _worlds(notes)[-1:] == [2], "it has grown for the first time")
    for number in range(count):
        world = 1 + number % 2
        if world == 1:
            sleep = ("-G", "1", "--workdir", "/tmp", "--", "/bin/sleep", "3600")
            other = living.run("dlq", "submit", "--parsable", *sleep).strip()
        else:
            living.run("dlq", "cancel", other)
        _until(lambda now=world: _worlds(notes)[-1:] == [now], f"resize {number} to {world}")  # type: ignore[misc]
        time.sleep(1.0)
    for one in filter(None, (job, other)):
        living.run("dlq", "cancel", "--kill", one)
    return _resizes(_notes(notes))[-count:]


def _notes(path: Path) -> list[dict[str, float]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _worlds(path: Path) -> list[float]:
    return [it["world"] for it in _notes(path) if "begun" in it]


def _resizes(notes: Sequence[dict[str, float]]) -> list[Down]:
    found = []
    for left, came in pairwise(notes):
        if "saved" in left and "begun" in came and left["world"] != came["world"]:
            whole_s = came["load_end"] - left["stopped"]
            own_s = left["saved"] - left["stopped"] + came["load_end"] - came["load_begin"]
            found.append(Down(int(came["world"]), whole_s, whole_s - own_s))
    return found


def _until(true: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.1)


def _import_s() -> float:
    """Of torch, in a process of its own."""
    took_s = []
    for _ in range(IMPORTS):
        began_s = time.monotonic()
        subprocess.run([TORCH / "python", "-c", "import torch.distributed"], check=True)
        took_s.append(time.monotonic() - began_s)
    return percentile(took_s, 0.5)


def _tell(report: Report, name: str, took_s: Sequence[float]) -> None:
    note = f"least {min(took_s):.2f}, most {max(took_s):.2f} of {len(took_s)}"
    report.figure(f"{name}, p50", percentile(list(took_s), 0.5), "s", note=note)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=4, help="resizes of each kind of job")
    parser.add_argument("--mib", type=int, default=8, help="size of the checkpoint")
    report = Report.begin("node.resizes_live", parser)
    if not (TORCH / "torchrun").exists():
        parser.error("needs .venv-torch: make e2e ONLY=torch-elastic")
    report.figure("an interpreter that imports torch, p50", _import_s(), "s")
    with tempfile.TemporaryDirectory() as name:
        report.disk(Path(name))
        with Living(Path(name), SETTINGS) as living:
            for node in ("n1", "n2"):
                living.start_agent(node, "fake:1xH100-80GB")
            _until(
                lambda: living.run("dlq", "nodes", "--json").count('"state":"up"') == 2,
                "both nodes are up",
            )
            for mode in ("live", "restart"):
                found = measured(living, mode, report.options.count, report.options.mib)
                for world, what in ((2, "grows"), (1, "shrinks")):
                    beyond = [it.beyond_s for it in found if it.world == world]
                    _tell(report, f"{mode}: {what}, beyond save and load", beyond)
    report.end()


if __name__ == "__main__":
    main()
