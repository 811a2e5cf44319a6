"""Suspension to host memory, by the agent's own code: off the GPU and back, again and again.

A process that holds memory shows the times and that no byte differs. A training that is suspended
between its steps shows that no loss differs.
"""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Iterator

from benchmarks.gpu.check import Check, ClaimBroken, CouldNot, Finding, broken_unless
from benchmarks.gpu.jobs.notes import now_s
from benchmarks.gpu.rounds import Mover, opened, started, trained
from benchmarks.gpu.site import Site, Submitted
from benchmarks.gpu.watching import Watched, wait
from dlq_nodeagent.suspension.suspender import HostSuspender, free_host_bytes

# Bytes, and the goal in seconds for both ways together.
SIZES = ((2 * 10**9, 1.5), (40 * 10**9, 10.0))
SHARE = 0.7  # of the GPU
HOST_SHARE = 0.5  # of the free memory of the host
START_S = 20.0
MOST_ROUNDS = 200
ROUNDS_S = 6.0  # for each size; one round is made in any case
STEP_S, BETWEEN = 0.05, 5
LENT_BYTES, LENT_STEPS, PATIENCE_S = 2 * 10**9, 80, 40.0


def suspended(site: Site) -> Iterator[Finding]:
    """A process leaves its GPU without saving, and comes back with its memory as it was."""
    gpu_bytes = int(SHARE * Watched().first.memory_bytes)
    host_bytes = int(HOST_SHARE * free_host_bytes())
    most = min(gpu_bytes, host_bytes)
    suspender = _opened(most)
    yield from _not_measured(gpu_bytes, host_bytes)
    for nbytes, goal_s in SIZES:
        yield from _there_and_back(site, suspender, min(nbytes, most), goal_s)
        if nbytes > most:
            break
    yield from _trained(site, suspender, most)


def _opened(nbytes: int) -> HostSuspender:
    suspender = opened(nbytes)
    if suspender.why_not:
        raise CouldNot(f"{suspender.why_not}; 570 or newer suspends")
    return suspender


def _not_measured(gpu_bytes: int, host_bytes: int) -> Iterator[Finding]:
    """The goals for more than this GPU, or the free memory of the host, can take."""
    for nbytes, _ in SIZES:
        told = f"{nbytes / 10**9:.3g} GB"
        if nbytes > host_bytes:
            free_gb = host_bytes / HOST_SHARE / 10**9
            yield Finding(told, f"not measured, {free_gb:.3g} GB of the host are free")
        elif nbytes > gpu_bytes:
            yield Finding(told, "not measured, the GPU has too little memory")


def _there_and_back(
    site: Site, suspender: HostSuspender, size: int, goal_s: float
) -> Iterator[Finding]:
    told = f"{size / 10**9:.3g} GB"
    with started(site, "hold", size) as (process, notes):
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
    seen = trained(site, suspender, min(SIZES[0][0], most), BETWEEN)
    yield Finding("training: times suspended", len(seen.seconds))
    yield Finding("training: of these, back on another GPU", seen.on_others)
    yield Finding("training: processes", seen.processes)
    yield Finding("training: losses that differ", seen.differ, f"of {BETWEEN + 1}")
    if words := seen.broken():
        raise ClaimBroken(words)


def lent(site: Site) -> Iterator[Finding]:
    """A training leaves its GPU to another job in the middle, and comes back to it."""
    _opened(LENT_BYTES)  # else its driver is too old
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
    yield from _cancelled(site, words)


def _cancelled(site: Site, words: tuple[object, ...]) -> Iterator[Finding]:
    """A suspended job ends while another one is on its GPU: that one's GPU is not withheld."""
    job = site.submit("train", *words)
    job.noted("trains", START_S)
    site.ask("pause", "--in-memory", job.job_id)
    wait(lambda: _phase(site, job) == "out", START_S, "the second job is off its GPU")
    guest = site.submit("hold", LENT_BYTES)
    guest.noted("holding", START_S)
    asked_s = now_s()
    site.ask("cancel", job.job_id)
    site.ended(job)
    yield Finding("end of a suspended job beside another", round(now_s() - asked_s, 2), "s")
    broken_unless(site.gpu()["state"] != "withheld", "the GPU of the other job is withheld")
    broken_unless(site.job(guest)["state"] == "running", "the other job does not run any more")


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
