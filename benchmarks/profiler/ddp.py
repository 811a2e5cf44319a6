"""The cost of recording to a real training job: CPU time of iterations with it and without, in
pairs.

    python -m benchmarks.profiler.ddp [--pairs N] [--json]

AlexNet by PyTorch's DistributedDataParallel on two ranks and gloo. Recording is switched at every
iteration of one run, so that the machine's other load falls on both. Needs .venv-torch (`make
bench` makes it).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks import ROOT
from benchmarks.support.report import Report
from dlq_profiler.directory import read_directory
from dlq_profiler.injection import built, injected
from dlq_profiler.records.control import write_control

TORCHRUN = ROOT / ".venv-torch" / "bin" / "torchrun"
RANKS = 2


def main() -> None:
    """Run the job and tell the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=30, help="of iterations (default 30)")
    report = Report.begin("profiler.ddp", parser)
    parts = built()
    if not TORCHRUN.exists() or parts is None:
        parser.error("needs .venv-torch and the profiler's library: make profiler")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        where = Path(scratch)
        write_control(where)
        job = [str(Path(__file__).with_name("toggled_job.py")), str(where / "notes")]
        subprocess.run(
            [str(TORCHRUN), f"--nproc-per-node={RANKS}", *job, str(report.options.pairs)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **injected(os.environ, where, parts)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        ratios = []
        for rank in range(RANKS):
            lines = (where / f"notes.{rank}").read_text().splitlines()
            ratios += [float(on) / float(off) for off, on in map(str.split, lines)]
        recorded = sum(len(r.records) + r.lost for r in read_directory(where).recordings)
    low, middle, high = statistics.quantiles(ratios, n=4)
    words = f"CPU of an iteration, recorded to not, {len(ratios)} pairs on {RANKS} ranks"
    note = f"quartiles {low:.3f} and {high:.3f}; {recorded:,} records"
    report.figure(words, middle, "", at_most=1.02, note=note)
    report.end()


if __name__ == "__main__":
    main()
