"""A real training: paused by a checkpoint and resumed; and its use of the GPU as it is sampled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from benchmarks.gpu.check import Check, Finding, broken_unless
from benchmarks.gpu.jobs.notes import now_s
from benchmarks.gpu.site import ASK_S, Site, Submitted
from benchmarks.gpu.watching import Watched, number, smi, wait
from dlq_nodeagent.devices.port import DeviceSample

TRAINED_BYTES, TRAINED_SHARE = 20 * 10**9, 0.4
STEPS = 100
STEP_S = 0.05  # at least; the stand-in would be through before it is paused
PAUSE_BEYOND_S = 0.5  # the goal beyond the job's own save
START_S = 60.0
BUSY_S, IDLE_S, SAMPLE_S = 12.0, 5.0, 0.2
BUSY_PERCENT, IDLE_PERCENT = 80, 20
NEAR_PERCENT = 20  # of utilization, and of power and clock in parts of a hundred


def paused(site: Site) -> Iterator[Finding]:
    """Losses and state after a pause in the middle are those of a run without one, to the last
    bit.
    """
    size, steps = _size(), int(site.machine.scaled(STEPS))
    words = (size, f"--steps={steps}", f"--step-s={STEP_S}")
    whole = site.submit("train", *words)
    trains = whole.noted("trains", START_S)
    yield Finding("on the GPU", round(trains["bytes"] / 10**9, 2), "GB")
    for name, version in trains["versions"].items():
        yield Finding(name, version)
    expected = whole.noted("ended", START_S)
    yield Finding("step", round(1000 * expected["took_s"] / steps, 1), "ms")
    # However late the pause comes, it comes in the middle.
    job = site.submit("train", *words, f"--no-further={3 * steps // 4}")
    job.noted("trains", START_S)
    wait(lambda: (site.job(job)["progress"] or {}).get("step"), 20, "dlq show has its steps", ASK_S)
    site.ask("pause", "-y", job.job_id)
    noticed, saved = job.noted("noticed", START_S), job.noted("saved", START_S)
    wait(lambda: site.job(job)["state"] == "held", START_S, "the job is paused", ASK_S)
    yield from _pause(site, job, noticed["wall_s"], saved["wall_s"])
    wait(Watched().is_free, 20, "the GPU of the paused job is free")
    resumed_s = now_s()
    site.ask("resume", job.job_id)
    again = job.noted("trains", START_S, count=2)
    yield Finding("resume to the first step", round(again["at_s"] - resumed_s, 2), "s")
    yield from _the_same(expected, saved, again, job)


def _pause(site: Site, job: Submitted, noticed_s: float, saved_s: float) -> Iterator[Finding]:
    """The way of a pause, by the master's journal and the job's own notes."""
    kinds = ("attempt_stop_requested", "attempt_preempted")
    events = site.ask("events", job.job_id, f"--type={','.join(kinds)}")["events"]
    times = {it["kind"]: datetime.fromisoformat(it["event_time"]).timestamp() for it in events}
    asked_s, given_back_s = (times[kind] for kind in kinds)
    yield Finding("request to the notice, seen by the job", round(noticed_s - asked_s, 2), "s")
    yield Finding("its own save", round(saved_s - noticed_s, 2), "s")
    yield Finding("save to GPUs given back", round(given_back_s - saved_s, 2), "s")
    beyond_s = given_back_s - asked_s - (saved_s - noticed_s)
    yield Finding(
        "pause beyond the save", round(beyond_s, 2), "s", site.machine.goal(PAUSE_BEYOND_S)
    )


def _the_same(
    expected: dict[str, Any], saved: dict[str, Any], again: dict[str, Any], job: Submitted
) -> Iterator[Finding]:
    steps = len(expected["losses"])
    yield Finding("paused after", saved["step"], f"of {steps} steps")
    broken_unless(again["step"] == saved["step"], f"it resumed from step {again['step']}")
    broken_unless(0 < saved["step"] < steps, "the pause did not come in the middle")
    ended = job.noted("ended", START_S)
    losses = [*saved["losses"], *ended["losses"]]
    differ = sum(one != other for one, other in zip(losses, expected["losses"], strict=True))
    yield Finding("losses that differ", differ)
    broken_unless(differ == 0, f"{differ} of {steps} losses differ after the pause")
    broken_unless(ended["digest"] == expected["digest"], "the state differs after the pause")


def sampled(site: Site) -> Iterator[Finding]:
    """Use, power and clock as the agent samples them follow what ran, and agree with
    nvidia-smi.
    """
    watched = Watched()
    idle = _samples(watched, site.machine.scaled(IDLE_S))
    job = site.submit("train", _size() // 4, f"--seconds={BUSY_S + 30}")
    job.noted("stepped", START_S)  # a first step takes longer, as kernels are loaded
    wait(lambda: _is_busy(watched.devices.samples()[0]), 20, "the GPU is seen to be busy")
    busy = _samples(watched, site.machine.scaled(BUSY_S))
    beside = smi(("utilization.gpu", "power.draw", "clocks.sm"))[0]
    shown = site.gpu()
    for what, of_it in (("idle", idle), ("busy", busy)):
        for name, value in of_it.items():
            yield Finding(f"{what}: {name}", "not told" if value is None else round(value, 1))
    yield Finding("nvidia-smi: utilization, W, MHz", ", ".join(beside))
    yield Finding("dlq gpus: utilization", str(shown["utilization_percent"]))
    used, rest = busy["utilization"], idle["utilization"]
    broken_unless(used is not None and rest is not None, "NVML tells no utilization")
    assert used is not None
    assert rest is not None
    broken_unless(used >= BUSY_PERCENT, f"a training that never waits is seen at {used:g} %")
    broken_unless(rest <= IDLE_PERCENT, f"a GPU without a job is seen at {rest:g} %")
    theirs = dict(zip(("utilization", "watts", "MHz"), map(number, beside), strict=True))
    for name, its in theirs.items():
        mine = busy[name]
        apart = 0.0 if its is None or mine is None else abs(its - mine)
        most = NEAR_PERCENT if name == "utilization" else NEAR_PERCENT / 100 * (its or 0.0)
        words = f"{name}: nvidia-smi has {its}, and the samples {mine}"
        broken_unless(apart <= most, words)
    for name in ("watts", "MHz"):
        low, high = idle[name], busy[name]
        rises = low is None or high is None or high >= low
        broken_unless(rises, f"{name} are {high} busy, and {low} idle")
    site.ask("cancel", "-y", job.job_id)


def _samples(watched: Watched, seconds: float) -> dict[str, float | None]:
    """Means over so long, by the code of the agent."""
    taken: list[DeviceSample] = []
    until_s = now_s() + seconds
    while now_s() < until_s:
        taken.append(watched.devices.samples()[0])
        time.sleep(SAMPLE_S)
    return {
        "utilization": _mean([it.utilization_percent for it in taken]),
        "watts": _mean([it.power_watts for it in taken]),
        "MHz": _mean([it.clock_mhz for it in taken]),
    }


def _mean(values: list[int | None] | list[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _is_busy(sample: DeviceSample) -> bool:
    """Also where the driver does not tell."""
    percent = sample.utilization_percent
    return percent is None or percent >= BUSY_PERCENT


def _size() -> int:
    return min(TRAINED_BYTES, int(TRAINED_SHARE * Watched().first.memory_bytes))


CHECKS = (
    Check(
        "paused",
        "A training is paused by a checkpoint and resumed, and not one bit differs.",
        ("nvml", "cuda", "torch"), 70, paused,
    ),
    Check(
        "sampled",
        "Use, power and clock as they are sampled follow what ran, and agree with nvidia-smi.",
        ("nvml", "smi", "torch"), 45, sampled,
    ),
)  # fmt: skip
