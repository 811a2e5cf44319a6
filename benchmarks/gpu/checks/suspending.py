"""Suspension to host memory, by the agent's own code: off the GPU and back, again and again.

A process that holds memory shows the times and that no byte differs. A training that is suspended
between its steps shows that no loss differs.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.check import Check, CouldNot, Finding, broken_unless
from benchmarks.gpu.jobs.notes import Notes, now_s
from benchmarks.gpu.site import Site, Submitted
from benchmarks.gpu.watching import Watched, wait
from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes
from dlq_nodeagent.devices.port import RELEASED_MEMORY_BYTES
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.runtimes.process.shim_process import session_pids
from dlq_nodeagent.suspension.port import MoveBroken, MoveOrder, MoveRefused, SuspendConfig
from dlq_nodeagent.suspension.standstill import SessionStandstill
from dlq_nodeagent.suspension.suspender import HostSuspender, free_host_bytes, open_suspender

# Bytes, and the goal in seconds for both ways together.
SIZES = ((2 * 10**9, 1.5), (40 * 10**9, 10.0))
SHARE = 0.7  # of the GPU
HOST_SHARE = 0.5  # of the free memory of the host
START_S = 20.0
MOST_ROUNDS = 200
ROUNDS_S = 6.0  # for each size; one round is made in any case
STEPS, STEP_S, BETWEEN = 120, 0.05, 5
LENT_BYTES, LENT_STEPS, PATIENCE_S = 2 * 10**9, 80, 40.0


@dataclass
class Mover:
    """Moves one process with its children, as the agent moves a rank."""

    suspender: HostSuspender
    order: MoveOrder

    @classmethod
    def of(cls, suspender: HostSuspender, pid: int) -> Mover:
        """`pid` leads a session."""
        uuids = tuple(device.uuid for device in suspender.devices.devices()[:1])
        still = SessionStandstill(lambda: frozenset(session_pids(pid, 0)))
        return cls(suspender, MoveOrder(key=RankKey("1", 1, 0), uuids=uuids, still=still))

    def round(self) -> tuple[float, float]:
        """Seconds of both ways."""
        try:
            return self.suspender.suspend(self.order).took_s, self.suspender.resume(
                self.order
            ).took_s
        except (MoveRefused, MoveBroken) as error:
            raise CouldNot(f"the process was not moved: {error}") from None


def suspended(site: Site) -> Iterator[Finding]:
    """A process leaves its GPU without saving, and comes back with its memory as it was."""
    most = min(int(SHARE * Watched().first.memory_bytes), int(HOST_SHARE * free_host_bytes()))
    config = SuspendConfig(memory=Bytes(2 * most), spare=Bytes(0))
    suspender = open_suspender(config, Watched().devices, RELEASED_MEMORY_BYTES, SteadyClock())
    if suspender.why_not:
        raise CouldNot(f"{suspender.why_not}; 570 or newer suspends")
    for nbytes, goal_s in SIZES:
        yield from _there_and_back(site, suspender, min(nbytes, most), goal_s)
        if nbytes > most:
            break
    yield from _trained(site, suspender, most)


def _there_and_back(
    site: Site, suspender: HostSuspender, size: int, goal_s: float
) -> Iterator[Finding]:
    told = f"{size / 10**9:.3g} GB"
    with _started(site, "hold", size) as (process, notes):
        wait(lambda: notes.all("holding"), START_S, "the process holds its memory")
        mover = Mover.of(suspender, process.pid)
        out_s: list[float] = []
        back_s: list[float] = []
        until_s = now_s() + site.machine.scaled(ROUNDS_S)
        while len(out_s) < MOST_ROUNDS and (not out_s or now_s() < until_s):
            out, back = mover.round()
            out_s.append(out)
            back_s.append(back)
        yield Finding(f"{told}: rounds", len(out_s), f"of {MOST_ROUNDS}")
        both = [sum(pair) for pair in zip(out_s, back_s, strict=True)]
        yield Finding(f"{told}: suspend, median", round(statistics.median(out_s), 3), "s")
        yield Finding(f"{told}: resume, median", round(statistics.median(back_s), 3), "s")
        yield Finding(f"{told}: suspend and resume, worst", round(max(both), 3), "s", goal_s)
        os.kill(process.pid, signal.SIGTERM)
        wait(lambda: notes.all("whole"), START_S, "the process has looked at its memory")
        broken_unless(notes.all("whole")[0]["whole"], "its memory is not as it was")


def _trained(site: Site, suspender: HostSuspender, most: int) -> Iterator[Finding]:
    """The losses of a training that was suspended, beside those of one that was not."""
    size, steps = min(SIZES[0][0], most), int(site.machine.scaled(STEPS))
    words = (size, f"--steps={steps}", f"--step-s={STEP_S}")
    with _started(site, "train", *words, name="whole") as (_, notes):
        wait(lambda: notes.all("ended"), START_S, "a training has ended")
        expected: dict[str, Any] = notes.all("ended")[0]
    rounds = 0
    with _started(site, "train", *words, name="moved") as (process, notes):
        wait(lambda: notes.all("trains"), START_S, "the training has begun")
        mover = Mover.of(suspender, process.pid)
        for _ in range(BETWEEN):
            if notes.all("ended"):
                break
            mover.round()
            rounds += 1
        wait(lambda: notes.all("ended"), START_S, "the suspended training has ended")
        ended = notes.all("ended")[0]
    broken_unless(rounds > 0, "the training ended before it was suspended")
    differ = sum(a != b for a, b in zip(ended["losses"], expected["losses"], strict=True))
    yield Finding("training: times suspended", rounds)
    yield Finding("training: losses that differ", differ, f"of {steps}")
    broken_unless(differ == 0, f"{differ} of {steps} losses differ")
    broken_unless(ended["digest"] == expected["digest"], "the state differs")


@contextmanager
def _started(
    site: Site, program: str, size: int, *words: object, name: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], Notes]]:
    path = site.root / f"notes.{name or size}"
    command = site.command(program, path, size, *words)
    process = subprocess.Popen(command, env=site.environment(), start_new_session=True)
    try:
        yield process, Notes(path)
    finally:
        process.kill()
        process.wait()


def lent(site: Site) -> Iterator[Finding]:
    """A training leaves its GPU to another job in the middle, and comes back to it."""
    words = (LENT_BYTES, f"--steps={LENT_STEPS}", f"--step-s={STEP_S}")
    whole = site.submit("train", *words)
    expected = whole.noted("ended", PATIENCE_S)
    job = site.submit("train", *words)
    job.noted("trains", START_S)
    asked_s = now_s()
    site.ask("pause", "--in-memory", job.job_id)
    wait(lambda: _phase(site, job) == "out", START_S, "the job is off its GPU")
    yield Finding("request to the GPU given back", round(now_s() - asked_s, 2), "s")
    guest = site.submit("hold", LENT_BYTES, "--seconds=1")
    holds = guest.noted("holding", START_S)
    yield Finding("the other job on its GPU", round(holds["bytes"] / 10**9, 2), "GB")
    broken_unless(site.job(job)["state"] == "suspended", "it is not shown as suspended")
    site.ended(guest)
    resumed_s = now_s()
    site.ask("resume", job.job_id)
    wait(lambda: site.job(job)["state"] != "suspended", START_S, "the job is on its GPU again")
    yield Finding("request to its GPU again", round(now_s() - resumed_s, 2), "s")
    ended = job.noted("ended", PATIENCE_S)
    differ = sum(a != b for a, b in zip(ended["losses"], expected["losses"], strict=True))
    yield Finding("losses that differ", differ, f"of {len(expected['losses'])}")
    broken_unless(differ == 0, f"{differ} losses differ")
    broken_unless(ended["digest"] == expected["digest"], "the state differs")
    broken_unless(site.job(job)["attempt_count"] == 1, "it was started again")


def _phase(site: Site, job: Submitted) -> str:
    found = site.job(job).get("suspension") or {}
    return str(found.get("phase", ""))


CHECKS = (
    Check(
        "suspended",
        "A process is moved off its GPU and back many times, and not one bit of it differs.",
        ("nvml", "cuda", "torch"), 35, suspended,
    ),
    Check(
        "lent",
        "A job leaves its GPU to another one without a save, comes back, and not one bit differs.",
        ("nvml", "cuda", "torch"), 40, lent,
    ),
)  # fmt: skip
