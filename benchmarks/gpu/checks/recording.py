"""The recorder of traffic beside NCCL: collectives, CUDA graphs, and its cost to a step."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.check import Check, CouldNot, Finding, broken_unless
from benchmarks.gpu.jobs.collect import COUNT
from benchmarks.gpu.jobs.notes import Notes
from benchmarks.gpu.machine import PATIENCE
from benchmarks.gpu.site import Site
from benchmarks.gpu.watching import Watched
from dlq_profiler.injection import Parts, built, injected
from dlq_profiler.records.control import write_control

CALLS, PAIRS = 5, 300
RATIO = 1.005  # the goal: a step costs half a percent more at most
TOO_SLOW = 1.02  # above this the claim is broken
STAND_IN_SLOW = 1.5  # its steps are short, and its host is shared
PLUGIN_SINCE = (2, 23)  # of NCCL
CAPTURES_SINCE = 5  # of the plugin's interface: it tells which calls are in a graph
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
    if ranks == 1:
        yield Finding("the sum of one rank", "its own data: that it is right proves little")
    yield from _plugin(called)
    graph = replayed["right"]
    yield Finding("CUDA graphs", "none in the stand-in" if graph is None else "ran, sums are right")
    broken_unless(graph is not False, "a CUDA graph beside the recorder did not run, or is wrong")
    seen: dict[str, int] = {}
    in_graphs = 0
    for recording in read_directory(where).recordings:
        name = "plugin" if recording.source == RecordSource.NCCL_PLUGIN else "wrappers"
        mine = recording.records[recording.records["op"] == Op.ALL_REDUCE]
        sized = mine[mine["bytes"] == 2 * COUNT]
        captured = sum(1 for flags in sized["flags"] if flags & RecordFlag.CAPTURED)
        seen[name] = seen.get(name, 0) + len(sized) - captured
        yield Finding(f"{ranks} ranks: {name}: all-reduces", len(sized) - captured)
        yield Finding(f"{ranks} ranks: {name}: captured in a graph", captured)
        in_graphs += captured
    yield Finding(f"{ranks} ranks: all-reduces called by each", CALLS)
    told = max(seen.values(), default=0)
    broken_unless(told >= CALLS * ranks, f"{told} of {CALLS * ranks} all-reduces were recorded")
    why = why_no_capture(int(called["api"]), ranks if graph is not None else 2)
    if why and not in_graphs:
        yield Finding(f"{ranks} ranks: no capture is told, because", why)
    broken_unless(bool(why) or in_graphs >= 1, "the all-reduce in the graph was not recorded")


def why_no_capture(api: int, ranks: int) -> str:
    """Why the recorder need not tell that a call is in a graph; empty: it must."""
    if api == 0:
        return "there is no plugin, and the wrappers do not know of graphs"
    if api < CAPTURES_SINCE:
        return f"version {api} of the plugin's interface does not tell (NCCL 2.28 and newer do)"
    return "NCCL may answer a single rank by itself" if ranks == 1 else ""


def _plugin(called: dict[str, Any]) -> Iterator[Finding]:
    """NCCL has loaded the plugin, if it knows of plugins."""
    loaded, api = bool(called["plugin"]), int(called["api"])
    version = f"yes, version {api} of the interface" if loaded else "no"
    yield Finding("plugin loaded", "yes, versions 1 to 3" if api == 3 else version)
    numbers = tuple(int(part) for part in re.findall(r"\d+", called["versions"]["nccl"])[:2])
    too_old = bool(numbers) and numbers < PLUGIN_SINCE
    broken_unless(loaded or too_old, "NCCL has not loaded the plugin, and is new enough for it")


def overhead(site: Site) -> Iterator[Finding]:
    """A step with recording takes as long as one without, and as one of a plain program."""
    pairs = int(site.machine.scaled(PAIRS))
    plain = _run(site, site.root / "plain", 1, 0, pairs, recorder=False).all("paired")[0]
    paired = _run(site, site.root / "paired", 1, 0, pairs).all("paired")[0]
    ratios = [on / off for off, on in zip(paired["off"], paired["on"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    bare_s, off_s = statistics.median(plain["off"]), statistics.median(paired["off"])
    goal = STAND_IN_SLOW if site.machine.stand_in else RATIO
    yield Finding("step without the recorder", round(1000 * bare_s, 3), "ms")
    yield Finding("step with it, not recorded", round(1000 * off_s, 3), "ms")
    yield Finding(
        "step not recorded to one without it, medians", round(off_s / bare_s, 4), "", goal
    )
    yield Finding("step recorded to not, median", round(middle, 4), "", goal)
    yield Finding("quartiles", f"{low:.4f} and {high:.4f}")
    yield Finding("pairs of steps", len(ratios))
    most = STAND_IN_SLOW if site.machine.stand_in else TOO_SLOW
    broken_unless(middle <= most, f"a recorded step takes {middle:.4f} of one that is not")


def _run(
    site: Site, where: Path, ranks: int, calls: int, pairs: int, *, recorder: bool = True
) -> Notes:
    """Run the ranks with the recorder. Raises CouldNot, or ClaimBroken where one fails."""
    parts = built() if recorder else None
    if recorder and parts is None:
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
    site: Site, where: Path, parts: Parts | None, rank: int, ranks: int, words: tuple[object, ...]
) -> subprocess.Popen[str]:
    environment = dict(site.environment())
    environment |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    # The hook of Python tells parameters of DDP, of which there are none here.
    if parts is not None:
        environment |= injected(environment, where, parts._replace(hook=None))
    return subprocess.Popen(
        site.command("collect", *words), env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip


CHECKS = (
    Check(
        "nccl",
        "NCCL and CUDA graphs work beside the recorder, and collectives are recorded.",
        ("nvml", "torch"), 40, collectives,
    ),
    Check(
        "overhead",
        "A step that is recorded takes as long as one that is not.",
        ("nvml", "torch"), 35, overhead,
    ),
)  # fmt: skip
