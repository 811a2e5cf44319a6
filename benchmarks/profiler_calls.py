"""What the profiler's preloaded library costs: CPU time per call that it records and that it does not.

    python -m benchmarks.profiler_calls [--rounds N] [--calls N] [--json]

Thread CPU time, medians of paired differences: recording is switched within one process, batch by
batch; "loaded" is compared with "not loaded" by processes in turn. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks.report import Report

from dlq_profiler.control import write_control

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "profiler" / "tests"
LIBRARY = ROOT / "profiler" / "dlq_profiler" / "lib" / "libdlqprof.so"
PROCESSES = 5  # of each kind, in turn
OVERRUN = 60_000  # calls of each of 8 threads: more than the rings hold


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=100_000)
    report = Report.begin("profiler_calls", parser)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        where = Path(scratch)
        measured = {
            call: _pairs(where, call, report.options.rounds, report.options.calls)
            for call in ("send", "write")
        }
        for call, goals in (("send", (150, 10)), ("write", (10, 10))):
            recorded, unrecorded, plain = measured[call]
            words = "an empty send on a TCP socket" if call == "send" else "a write to /dev/null"
            kind = "recorded" if call == "send" else "looked at and not recorded"
            note = f"of {plain:.0f} ns"
            report.figure(
                f"{words}, {kind}: added CPU", recorded, "ns", at_most=goals[0], note=note
            )
            report.figure(
                f"{words}, loaded and switched off: added CPU", unrecorded, "ns", at_most=goals[1],
                note=note,
            )  # fmt: skip
        resident = _resident_mib(where)
        report.figure("memory of full rings and tables, resident", resident, "MiB", at_most=16)
    report.end()


def _pairs(where: Path, call: str, rounds: int, calls: int) -> tuple[float, float, float]:
    """Added ns per call with recording on, with the library only loaded, and ns without it."""
    program = _compile(where, "rate.c")
    on, loaded, alone = [], [], []
    for turn in range(PROCESSES):
        directory = where / f"{call}-{turn}"
        directory.mkdir()
        write_control(directory)
        argv = [str(program), call, str(rounds), str(calls)]
        plain = _lines(argv, {})
        watched = _lines(argv, {"LD_PRELOAD": str(LIBRARY), "DLQ_PROF_DIR": str(directory)})
        on += [with_it - without for without, with_it in watched]
        off = statistics.median(without for without, _ in watched)
        alone.append(statistics.median(min(pair) for pair in plain))
        loaded.append(off - statistics.median(without for without, _ in plain))
    return statistics.median(on), statistics.median(loaded), statistics.median(alone)


def _lines(argv: list[str], environment: dict[str, str]) -> list[tuple[float, float]]:
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return [(float(off), float(on)) for off, on in map(str.split, done.stdout.splitlines())]


def _resident_mib(where: Path) -> float:
    """Of a process whose threads have overrun their rings: the record file and the library's tables."""
    directory = where / "full"
    directory.mkdir()
    write_control(directory)
    argv = [str(_compile(where, "threads.c")), "full", "8", str(OVERRUN)]
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "DLQ_PROF_DIR": str(directory)}
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "full\n"
        maps = Path(f"/proc/{child.pid}/smaps").read_text()
        child.communicate()
    # A mapping's first line, and all its figures up to the next mapping.
    found = re.findall(r"^[0-9a-f]+-[0-9a-f]+ [^\n]*\n(?:\w+:[^\n]*\n)+", maps, re.MULTILINE)
    ours = [
        one
        for i, one in enumerate(found)
        if "dlqprof" in one.split("\n")[0] or _is_bss(one, found[i - 1])
    ]
    return (
        sum(int(kb) for one in ours for kb in re.findall(r"^Rss: +(\d+)", one, re.MULTILINE)) / 1024
    )


def _is_bss(mapping: str, before: str) -> bool:
    """The nameless pages that follow the library's own."""
    return len(mapping.split("\n")[0].split()) == 5 and LIBRARY.name in before.split("\n")[0]


def _compile(where: Path, source: str) -> Path:
    target = where / Path(source).stem
    include = ["-I", str(PROGRAMS), "-I", str(PROGRAMS.parent / "include")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread"]
    subprocess.run(["cc", *flags, *include, str(PROGRAMS / source), "-o", str(target)], check=True)
    return target


if __name__ == "__main__":
    main()
