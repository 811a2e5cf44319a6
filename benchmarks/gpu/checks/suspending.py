"""The driver's own suspension of a process: the ground on which `preempt = suspend` would stand.

dlq does not suspend jobs yet. This check shows what the driver does with one process on this
machine: lock, checkpoint to host memory, restore, unlock; and at which speed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

from benchmarks.gpu.check import Check, CouldNot, Finding, broken_unless
from benchmarks.gpu.jobs.cuda import CudaError, Driver
from benchmarks.gpu.jobs.notes import Notes, now_s
from benchmarks.gpu.site import Site
from benchmarks.gpu.watching import Watched, wait

# Bytes, and the goal in seconds for both ways together.
SIZES = ((2 * 10**9, 1.5), (40 * 10**9, 10.0))
SHARE = 0.7  # of the GPU
HOST_SHARE = 0.5  # of the free memory of the host
START_S = 20.0
STEPS = ("Lock", "Checkpoint", "Restore", "Unlock")


def suspended(site: Site) -> Iterator[Finding]:
    """A process leaves its GPU without saving, and comes back with its memory as it was."""
    driver = Driver()
    missing = [name for name in STEPS if not driver.has(f"cuCheckpointProcess{name}")]
    if missing:
        raise CouldNot(f"the driver has no cuCheckpointProcess{missing[0]} (570 or newer has)")
    driver.call("cuInit", 0)
    total = Watched().first.memory_bytes
    most = min(int(SHARE * total), int(HOST_SHARE * _free_host()))
    for nbytes, goal_s in SIZES:
        yield from _there_and_back(site, driver, min(nbytes, most), goal_s)
        if nbytes > most:
            return


def _there_and_back(site: Site, driver: Driver, size: int, goal_s: float) -> Iterator[Finding]:
    watched, told = Watched(), f"{size / 10**9:.3g} GB"
    notes = Notes(site.root / f"notes.{size}")
    command = site.command("hold", site.root / f"notes.{size}", size)
    process = subprocess.Popen(command, env=site.environment())
    try:
        wait(lambda: notes.all("holding"), START_S, "the process holds its memory")
        took = {}
        for name in STEPS:
            began_s = now_s()
            _step(driver, name, process.pid)
            took[name] = now_s() - began_s
            if name == "Checkpoint":
                watched.until_free(5)
        each = ", ".join(f"{name.lower()} {seconds:.3f}" for name, seconds in took.items())
        yield Finding(f"{told}: seconds", each)
        yield Finding(f"{told}: suspend and resume", round(sum(took.values()), 3), "s", goal_s)
        os.kill(process.pid, signal.SIGTERM)
        wait(lambda: notes.all("whole"), START_S, "the process has looked at its memory")
        broken_unless(notes.all("whole")[0]["whole"], "its memory is not as it was")
    finally:
        process.kill()
        process.wait()


def _step(driver: Driver, name: str, pid: int) -> None:
    try:
        driver.call(f"cuCheckpointProcess{name}", pid, None)
    except CudaError as error:
        raise CouldNot(f"the driver refuses to {name.lower()} a process: {error}") from None


def _free_host() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


CHECKS = (
    Check(
        "suspended",
        "The driver moves a process off its GPU and back. dlq itself suspends no job yet.",
        ("nvml", "cuda"), 40, suspended,
    ),
)  # fmt: skip
