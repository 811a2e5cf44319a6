"""The cost of the profiler's preloaded library: CPU time per recorded and per unrecorded call.

    python -m benchmarks.profiler.calls [--rounds N] [--calls N] [--json]

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

from benchmarks import ROOT
from benchmarks.support.report import Report
from dlq_profiler.records.control import write_control

PROGRAMS = ROOT / "profiler" / "tests"
LIBRARY = ROOT / "profiler" / "dlq_profiler" / "lib" / "libdlqprof.so"
PROCESSES = 5  # of each kind, in turn
OVERRUN = 60_000  # calls of each of 8 threads: more than the rings hold


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=100_000)
    report = Report.begin("profiler.calls", parser)
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
        if Path("/usr/include/infiniband/verbs.h").exists():
            on, off, plain = _verbs(where, report.options.rounds, report.options.calls)
            words, note = "a request posted and a poll, ibverbs", f"of {plain:.0f} ns on a stub"
            report.figure(f"{words}, recorded: added CPU", on, "ns", at_most=100, note=note)
            report.figure(f"{words}, switched off: added CPU", off, "ns", note=note)
        resident = _resident_mib(where)
        report.figure("memory of full rings and tables, resident", resident, "MiB", at_most=16)
    report.end()


def _pairs(where: Path, call: str, rounds: int, calls: int) -> tuple[float, float, float]:
    """Added ns per call with recording on, with the library only loaded, and ns without it."""
    argv = [str(_compile(where, "rate.c")), call, str(rounds), str(calls)]
    return _paired(where / call, argv, {})


def _verbs(where: Path, rounds: int, calls: int) -> tuple[float, float, float]:
    """The same for a request and a poll, on a device that moves no bytes."""
    versions = f"-Wl,--version-script={PROGRAMS / 'stub_ibverbs.map'}"
    shared = ("-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", versions)
    _compile(where, "stub_ibverbs.c", *shared, name="libibverbs.so.1")
    program = _compile(where, "verbs_rate.c", f"-L{where}", "-l:libibverbs.so.1")
    argv = [str(program), str(rounds), str(calls)]
    return _paired(where / "verbs", argv, {"LD_LIBRARY_PATH": str(where)})


def _paired(
    directory: Path, argv: list[str], environment: dict[str, str]
) -> tuple[float, float, float]:
    directory.mkdir()
    write_control(directory)
    watched = {**environment, "LD_PRELOAD": str(LIBRARY), "DLQ_PROF_DIR": str(directory)}
    on, loaded, alone = [], [], []
    for _ in range(PROCESSES):
        plain = statistics.median(off for off, _ in _lines(argv, environment))
        pairs = _lines(argv, watched)
        on += [with_it - without for without, with_it in pairs]
        loaded.append(statistics.median(off for off, _ in pairs) - plain)
        alone.append(plain)
    return statistics.median(on), statistics.median(loaded), statistics.median(alone)


def _lines(argv: list[str], environment: dict[str, str]) -> list[tuple[float, float]]:
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return [(float(off), float(on)) for off, on in map(str.split, done.stdout.splitlines())]


def _resident_mib(where: Path) -> float:
    """Of a process whose threads have overrun their rings: the record file and the library's
    tables.
    """
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


def _compile(where: Path, source: str, *more: str, name: str = "") -> Path:
    target = where / (name or Path(source).stem)
    include = ["-I", str(PROGRAMS), "-I", str(PROGRAMS.parent / "include")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread"]
    command = ["cc", *flags, *include, str(PROGRAMS / source), "-o", str(target), *more]
    subprocess.run(command, check=True)
    return target


if __name__ == "__main__":
    main()
