"""The analysis of a traffic profile: CPU time from record files to a verdict.

    python -m benchmarks.profiler.analysis [--records 1000000] [--json]

Four ranks of a ring all-reduce, with the buckets of AlexNet and two receives for each send, as gloo
makes them. One file for each rank, as the libraries write them. CPU time of this process, the best
of three, reading included. Goal: one million records in 2 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.support.report import Report
from dlq_profiler.directory import profile_directories
from dlq_profiler.records.layout import Op
from dlq_profiler.records.requests import Records
from dlq_profiler.results import JobProfile
from support.model_shapes import buckets, tensors
from support.traffic import Tape, ring_rank, write_file

RANKS = 4
PER_CHUNK = 1024


class _Recorded(Tape):
    """A tape whose records were made at once."""

    made: Records

    def records(self) -> Records:
        return self.made


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="of all ranks together")
    report = Report.begin("profiler.analysis", parser)
    with tempfile.TemporaryDirectory() as directory:
        sizes = tensors("alexnet")
        for rank in range(RANKS):
            tape = longer(rank, list(buckets(sizes)), report.options.records // RANKS)
            write_file(
                Path(directory) / f"{100 + rank}-1.dlqprof", tape, pid=100 + rank,
                identity=f"RANK={rank}\nWORLD_SIZE={RANKS}\n", chunk_records=PER_CHUNK,
                chunks=len(tape.made) // PER_CHUNK + 1, thread_chunks=1024,
            )  # fmt: skip
        runs = [timed(Path(directory)) for _ in range(3)]
    found, taken_s = runs[0][0], min(seconds for _, seconds in runs)
    if found.model_bytes != sum(sizes):
        sys.exit(f"the analysis is wrong: {found}")
    report.figure("records", found.records, "")
    report.figure("iterations", found.iterations, "")
    report.figure("read and analysed, CPU", taken_s, "s", at_most=2)
    report.figure("for each record", taken_s / found.records * 1e6, "us")
    report.end()


def timed(directory: Path) -> tuple[JobProfile, float]:
    """The verdict, and the CPU seconds that it took."""
    start = time.process_time()
    found, refused = profile_directories([directory])
    taken_s = time.process_time() - start
    if refused:
        sys.exit(str(refused[0]))
    return found, taken_s


def longer(rank: int, layout: list[int], records: int) -> _Recorded:
    """A rank's tape, its two iterations over and over."""
    tape = ring_rank([layout] * 2, rank=rank, ranks=RANKS, noise=False)
    sends = tape.records()
    receives = np.repeat(sends, 2)
    receives["op"], receives["flags"], receives["aux"] = Op.RECV, 0, 0
    receives["ts_ns"] += np.tile([300, 600], len(sends))
    both = np.concatenate([sends, receives])
    both = both[np.argsort(both["ts_ns"], kind="stable")]
    times = -(-records // len(both))
    took = tape.now_ns - int(both["ts_ns"][0])
    made = np.tile(both, times)
    turn = np.repeat(np.arange(times), len(both))
    made["ts_ns"] += turn * took
    made["aux"] += np.where(made["aux"] > 0, turn * 2 * len(layout) << 24, 0).astype(np.uint64)
    whole = _Recorded(tape.draw, conns=tape.conns)
    whole.made = made[:records]
    return whole


if __name__ == "__main__":
    main()
