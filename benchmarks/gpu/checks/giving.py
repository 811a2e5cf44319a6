"""GPUs are given to one job at a time, and again only when they are proven free."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from benchmarks.gpu.check import Check, Finding, broken_unless
from benchmarks.gpu.jobs.cuda import NO_DEVICE
from benchmarks.gpu.jobs.notes import Notes, now_s
from benchmarks.gpu.site import ASK_S, Site, Submitted
from benchmarks.gpu.watching import Watched, wait
from dlq_nodeagent.devices.port import MIB, RELEASED_MEMORY_BYTES

SMALL = 256 * MIB
HELD_SHARE, HELD_BYTES = 0.7, 100 * 10**9
FOREIGN_BYTES = 2 * 1024**3
START_S = 30.0
GIVEN_AGAIN_S = 2.0  # the goal from free to given out again
_NOT_EXCLUSIVE = "gpus_not_exclusive"
STILL_S = 3.0  # so long a GPU is watched that must not be given


def exclusive(site: Site) -> Iterator[Finding]:
    """A job sees its GPUs. Another sees none, and a third waits; it is said what protects them."""
    owner = site.submit("hold", SMALL)
    uuids = owner.noted("context", START_S)["uuids"]
    mine = {device.uuid for device in Watched().devices.devices()}
    broken_unless(set(uuids) == mine, f"the job sees {uuids}, and its GPUs are {sorted(mine)}")
    third = site.submit("hold", SMALL)
    other = site.submit("look", on_gpus=False)
    saw = other.noted("saw", START_S)
    broken_unless(not saw["uuids"], f"a job without GPUs sees {saw['uuids']}")
    yield Finding("a job without GPUs sees", saw["error"] or "none, and CUDA starts")
    pried = other.noted("pried", START_S)
    reached = [*pried["uuids"], *pried["opened"]]
    says = _NOT_EXCLUSIVE in site.agent_log or "no_cgroups" in site.agent_log
    yield Finding("protected by", protection(pried, says_exclusive=not says))
    yield Finding("reached without its variables", ", ".join(reached) or "nothing")
    refused = [f"{name}: {word}" for name, word in pried["refused"].items()]
    yield Finding("refused without its variables", ", ".join(refused) or "nothing")
    yield Finding("CUDA without its variables", pried["error"] or "it starts")
    yield Finding("the agent says", _NOT_EXCLUSIVE if says else "exclusive")
    broken_unless(says or not reached, f"the agent promises more: a job reached {reached}")
    broken_unless(not third.notes.all(), "a third job began beside the owner of all GPUs")
    yield Finding("the third job waits for", str(site.job(third)["wait_code"]))
    site.ask("cancel", "-y", owner.job_id)
    third.noted("holding", START_S)


def protection(pried: Mapping[str, Any], *, says_exclusive: bool) -> str:
    """The protection that is seen: a control group refuses files with EPERM, and CUDA then finds
    no device. Any other failure may have a reason of its own.
    """
    if pried["uuids"] or pried["opened"]:
        return "visible devices only"
    words = set(pried["refused"].values())
    if says_exclusive and words == {"EPERM"} and pried["code"] == NO_DEVICE:
        return "the control group"
    return "not known"


def killed(site: Site) -> Iterator[Finding]:
    """A job that is killed with -9 while it holds most of a GPU: the next one begins after it is
    free.
    """
    watched = Watched()
    held = min(HELD_BYTES, int(HELD_SHARE * watched.first.memory_bytes))
    yield Finding("held", round(held / 10**9, 1), "GB")
    first = site.submit("hold", held)
    first.noted("holding", START_S)
    yield Finding("used, as NVML has it", round(watched.usage().used_memory_bytes / 10**9, 1), "GB")
    second = site.submit("hold", SMALL)
    pid = first.noted("holding", 1)["pid"]
    killed_s = now_s()
    os.kill(pid, signal.SIGKILL)
    yield from _given_after(watched, second, killed_s, site.machine.goal(GIVEN_AGAIN_S))
    yield Finding("state of the killed job", str(site.ended(first)["end_reason"]))


def hidden(site: Site) -> Iterator[Finding]:
    """A process that hides, in a session of its own or outside of dlq, keeps its GPU from jobs."""
    watched = Watched()
    first = site.submit("hold", FOREIGN_BYTES, "--escape")
    pid = first.noted("holding", START_S)["pid"]
    second = site.submit("hold", SMALL)
    yield from _kept(site, watched, second, pid, "escaped process")
    second.noted("holding", START_S)
    site.ask("cancel", "-y", second.job_id)
    watched.until_free(START_S)
    yield from _foreign(site, watched)


def _foreign(site: Site, watched: Watched) -> Iterator[Finding]:
    """A process that dlq has not started, and that NVML may not list."""
    notes = Notes(site.root / "notes.foreign")
    # The fake driver hides it by the variable; a real one may hide what another namespace has.
    hiding = () if site.machine.stand_in else ("--hide",)
    command = site.command("hold", site.root / "notes.foreign", FOREIGN_BYTES, *hiding)
    environment = {**site.environment(), "FAKE_CUDA_HIDDEN": "1"}
    foreign = subprocess.Popen(command, env=environment)
    try:
        wait(lambda: notes.all("holding"), START_S, "a process outside of dlq holds memory")
        usage = watched.usage()
        yield Finding("processes that NVML lists", str(len(usage.processes)))
        yield Finding("the holder is", "listed, not hidden" if usage.processes else "in no list")
        if hiding:
            hid = notes.all("hidden")[0]
            yield Finding("in a namespace of its own", "yes" if hid["done"] else hid["why"])
        wait(lambda: site.gpu()["state"] == "withheld", 10, "dlq gpus shows it as withheld", ASK_S)
        codes = ", ".join(one["code"] for one in site.gpu()["conditions"])
        yield Finding("in dlq gpus", codes)
        third = site.submit("hold", SMALL)
        yield from _kept(site, watched, third, foreign.pid, "process outside of dlq")
    finally:
        foreign.kill()
        foreign.wait()
    yield from _given_after(watched, third, now_s())


def _kept(
    site: Site, watched: Watched, waiting: Submitted, pid: int, what: str
) -> Iterator[Finding]:
    """As long as the memory is in use, the waiting job has not begun."""
    begun_s, still_s = now_s(), site.machine.scaled(STILL_S)
    while now_s() - begun_s < still_s:
        # In this order: it may become free, and be given, between the looks.
        began, free = waiting.notes.all("begun"), watched.is_free()
        broken_unless(free or not began, f"a job began beside the {what}")
        if free:
            yield Finding(f"{what} ended by dlq after", round(now_s() - begun_s, 2), "s")
            return
        time.sleep(0.02)
    yield Finding(f"{what} kept its GPU from others for", still_s, "s")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _given_after(
    watched: Watched, following: Submitted, ended_s: float, goal_s: float | None = None
) -> Iterator[Finding]:
    """The next job begins when the GPU is free, and finds it so. `ended_s`: its last holder did."""
    wait(
        lambda: watched.is_free() or following.notes.all("begun"),
        START_S, "the GPU of a process that has ended is free",
    )  # fmt: skip
    free_s = now_s()
    yield Finding("end of the process to free", round(free_s - ended_s, 3), "s")
    begun = following.noted("begun", START_S)
    yield Finding("free to given out again", round(begun["at_s"] - free_s, 3), "s", goal_s)
    found = following.noted("context", START_S)
    yield Finding("begun to its context", round(found["at_s"] - begun["at_s"], 3), "s")
    left = found["total"] - found["free"]
    yield Finding("in use when the next job began", left // MIB, "MiB")
    own = 3 * RELEASED_MEMORY_BYTES  # with the next job's own context, and the driver's reserve
    broken_unless(left < own, f"{left // MIB} MiB were in use when the next job began")


CHECKS = (
    Check(
        "exclusive",
        "A job sees its GPUs and no other; the next one waits. It is said what protects them.",
        ("nvml", "cuda"), 35, exclusive,
    ),
    Check(
        "killed",
        "A job that holds most of a GPU is killed with -9. The next one begins when it is free.",
        ("nvml", "cuda"), 40, killed,
    ),
    Check(
        "hidden",
        "A process that hides in a session of its own, or outside of dlq, keeps its GPU from jobs.",
        ("nvml", "cuda"), 40, hidden,
    ),
)  # fmt: skip
