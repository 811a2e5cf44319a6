"""The recorder of traffic beside NCCL: collectives, CUDA graphs, and its cost to a step."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.check import Check, CouldNot, Finding, broken_unless
from benchmarks.gpu.jobs.collect import COUNT
from benchmarks.gpu.jobs.notes import Notes
from benchmarks.gpu.site import Site
from benchmarks.gpu.watching import PATIENCE, Watched
from dlq_profiler.injection import Parts, built, injected
from dlq_profiler.records.control import write_control

CALLS, PAIRS = 5, 300
RATIO = 1.005  # the goal: a step costs half a percent more at most
RUN_S = 60.0


def collectives(site: Site) -> Iterator[Finding]:
    """NCCL works beside the recorder, and what it calls is recorded with its bytes."""
    yield from _recorded(site, 1)
    if len(Watched().devices.devices()) > 1:
        yield from _recorded(site, 2)


def _recorded(site: Site, ranks: int) -> Iterator[Finding]:
    # Late: it needs numpy.
    from dlq_profiler.directory import read_directory
    from dlq_profiler.records.layout import Op, RecordFlag, RecordSource

    where = site.root / f"recorded.{ranks}"
    notes = _run(site, where, ranks, CALLS, 0)
    called, replayed = notes.all("called")[0], notes.all("replayed")[0]
    for name, version in called["versions"].items():
        yield Finding(name, version)
    broken_unless(called["right"], "an all-reduce beside the recorder is wrong")
    graph = replayed["right"]
    yield Finding("CUDA graphs", "none in the stand-in" if graph is None else "as without it")
    broken_unless(graph is not False, "a CUDA graph beside the recorder is wrong")
    seen: dict[str, int] = {}
    for recording in read_directory(where).recordings:
        name = "plugin" if recording.source == RecordSource.NCCL_PLUGIN else "wrappers"
        mine = recording.records[recording.records["op"] == Op.ALL_REDUCE]
        sized = mine[mine["bytes"] == 2 * COUNT]
        captured = sum(1 for flags in sized["flags"] if flags & RecordFlag.CAPTURED)
        seen[name] = seen.get(name, 0) + len(sized) - captured
        yield Finding(f"{ranks} ranks: {name}: all-reduces", len(sized) - captured)
        yield Finding(f"{ranks} ranks: {name}: captured in a graph", captured)
    yield Finding(f"{ranks} ranks: all-reduces called by each", CALLS)
    told = max(seen.values(), default=0)
    broken_unless(told >= CALLS * ranks, f"{told} of {CALLS * ranks} all-reduces were recorded")


def overhead(site: Site) -> Iterator[Finding]:
    """A step with recording takes as long as one without."""
    notes = _run(site, site.root / "paired", 1, 0, int(site.machine.scaled(PAIRS)))
    paired = notes.all("paired")[0]
    ratios = [on / off for off, on in zip(paired["off"], paired["on"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    yield Finding("step without recording", round(1000 * statistics.median(paired["off"]), 3), "ms")
    yield Finding("step recorded to not, median", round(middle, 4), "", RATIO)
    yield Finding("quartiles", f"{low:.4f} and {high:.4f}")
    yield Finding("pairs of steps", len(ratios))


def _run(site: Site, where: Path, ranks: int, calls: int, pairs: int) -> Notes:
    """Run the ranks with the recorder. Raises CouldNot, or ClaimBroken where one fails."""
    parts = built()
    if parts is None:
        raise CouldNot("the recorder was not built: there is no C compiler")
    where.mkdir()
    write_control(where)
    notes = where.with_suffix(".notes")
    words = (notes, where.with_suffix(".meet"), calls, pairs)
    running = [_rank(site, where, parts, rank, ranks, words) for rank in range(ranks)]
    try:
        said = [process.communicate(timeout=RUN_S * PATIENCE)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    codes = [process.returncode for process in running]
    last = " | ".join(said[0].strip().splitlines()[-3:])
    broken_unless(not any(codes), f"a program beside the recorder ended with {codes}: {last}")
    return Notes(notes)


def _rank(
    site: Site, where: Path, parts: Parts, rank: int, ranks: int, words: tuple[object, ...]
) -> subprocess.Popen[str]:
    environment = dict(site.environment())
    environment |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    # The hook of Python tells parameters of DDP, of which there are none here.
    environment |= injected(environment, where, parts._replace(hook=None))
    return subprocess.Popen(
        site.command("collect", *words), env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip


CHECKS = (
    Check(
        "nccl",
        "NCCL and CUDA graphs work beside the recorder, and collectives are recorded.",
        ("nvml", "torch"), 45, collectives,
    ),
    Check(
        "overhead",
        "A step that is recorded takes as long as one that is not.",
        ("nvml", "torch"), 35, overhead,
    ),
)  # fmt: skip
