"""The time of a pause and a resume beyond the job's own save and load, by runtime.

    python -m benchmarks.node.pauses [--count N] [--mib N] [--json]

A real master and agent, and one job (saving_job.py) that is paused and resumed again and again. It
notes on CLOCK_BOOTTIME when it begins, loads, sees the notice and has saved. The client notes on
the same clock when it asks, and when it hears from the master that the GPUs are given back
(attempt_preempted).

Pause: from the request to that event, less the save. Resume: from the request to the first line of
the program. The time from there until it loads is its own. Floors: an interpreter's time to its
first line, and in a container podman's own time for it (benchmarks/node/launches.py): `podman run`
before, and `podman wait` and `rm` after. The goals are ours. A pause takes 100 ms beyond the save
and the floor. A resume, as any start, takes 50 ms until the shim starts the program or podman. A
pause that comes in the job's first second must wait for its first beat, and should wait for nothing
else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpc import aio, ssl_channel_credentials

import dlq_train
from benchmarks.node.containers import HOST_IMAGE, bare, store, why_no_containers
from benchmarks.node.cycles import Cycle, Job, cycles, now_s
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq.v1 import job_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.runtimes.podman.client import choose_oci_runtime

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub

PROGRAM = Path(__file__).with_name("saving_job.py")
LIBRARY = Path(dlq_train.__file__).parent.parent
PAUSE_GOAL_MS, RESUME_GOAL_MS = 100, 50
# Longer than it takes the agent to see the first beat, and never in step with it.
SETTLE_S = (1.3, 1.9)
PODMAN_TOML = """
[jobs]
runtime = "podman"

[podman]
root = "{at}/store"
run_root = "{at}/run"
oci_runtime = "{oci_runtime}"
mount_roots = ["/"]
secrets = "{at}/secrets"
run_dir = "{at}/handed"
spare = "1MiB"
"""


async def lives(
    identity: Identity, living: Living, spec: job_pb2.JobSpec, count: int
) -> tuple[list[Cycle], list[Cycle]]:
    """Cycles of a job that has run for a while each time, and of one that has only just begun."""
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    draw = random.Random(1)
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        stub: JobServiceAsyncStub = JobServiceStub(channel)  # its asynchronous face
        job = Job(stub, living, living.root / "n1")
        listening = asyncio.create_task(job.listen())
        await asyncio.sleep(0.5)  # the watch stands before the first submit
        await job.submit(spec)
        settled = await cycles(job, count, lambda: draw.uniform(*SETTLE_S), 1)
        fresh = await cycles(job, max(1, count // 2), lambda: 0.0, count + 1)
        await job.cancel()
        await asyncio.sleep(1.0)
        listening.cancel()
    return settled, fresh


def interpreter_floor_s(count: int = 20) -> float:
    """Median time from spawning an interpreter to its first line."""
    took = []
    line = "import time; print(time.clock_gettime(time.CLOCK_BOOTTIME))"
    for _ in range(count):
        begin_s = now_s()
        said = subprocess.run([sys.executable, "-c", line], check=True, stdout=subprocess.PIPE)
        took.append(float(said.stdout) - begin_s)
    return percentile(took, 0.5)


def spec_of(said: Path, mib: int, *, contained: bool) -> job_pb2.JobSpec:
    """The job, in a container that borrows this machine's Python when it is wanted."""
    spec = job_pb2.JobSpec(
        command=[sys.executable, str(PROGRAM), str(said / "notes"), str(mib)],
        working_directory="/tmp",
        environment={"PYTHONPATH": str(LIBRARY)},
    )
    spec.resources.gpu_count = 1
    if contained:
        spec.container.image = HOST_IMAGE
        spec.container.network = "none"
        spec.container.mounts.add(source=str(said), target=str(said))
        for place in {"/usr", sys.prefix, sys.base_prefix, str(PROGRAM.parent), str(LIBRARY)}:
            spec.container.mounts.add(source=place, target=place, read_only=True)
    return spec


@dataclass(frozen=True, slots=True)
class Floors:
    """Below these nothing can be: seconds to a program's first line, and to take a dead one
    away.
    """

    begin_s: float
    end_s: float = 0.0


def measure(report: Report, runtime: str, settings: str, floors: Floors) -> None:
    """A cluster of one node with this runtime."""
    with tempfile.TemporaryDirectory() as name, Living(Path(name)) as living:
        living.start_agent("n1", "fake:8xH100-80GB", settings)
        (living.root / "said").mkdir(mode=0o777)
        identity = load_identity(living.home)
        assert identity is not None
        spec = spec_of(living.root / "said", report.options.mib, contained=runtime == "podman")
        settled, fresh = asyncio.run(lives(identity, living, spec, report.options.count))
    tell_pauses(report, runtime, settled, floors.end_s)
    quick = [cycle.pause_beyond_s for cycle in fresh]
    _tell(report, f"{runtime}: pause beyond the save, in the job's first second", quick)
    tell_resumes(report, runtime, settled + fresh, floors.begin_s)


def tell_pauses(report: Report, runtime: str, found: list[Cycle], floor_s: float) -> None:
    """The way of a pause, step by step."""
    for what, took in (
        ("request to the notice, seen by the job", [it.noticed_s - it.asked_s for it in found]),
        ("the job's own save", [it.saved_s - it.noticed_s for it in found]),
        ("save to the end of the last process", [it.ended_s - it.saved_s for it in found]),
        ("end to GPUs given back at the master", [it.paused_s - it.ended_s for it in found]),
    ):
        _tell(report, f"{runtime}: {what}", took)
    beyond = [it.pause_beyond_s - floor_s for it in found]
    what = "the save" if not floor_s else "the save and the floor"
    _tell(report, f"{runtime}: pause beyond {what}", beyond, at_most_ms=PAUSE_GOAL_MS)


def tell_resumes(report: Report, runtime: str, found: list[Cycle], floor_s: float) -> None:
    """The way of a resume, step by step."""
    begun = [it.begun_s - it.resumed_s for it in found]
    started = [it.started_s - it.resumed_s for it in found]
    _tell(report, f"{runtime}: resume to the start", started, at_most_ms=RESUME_GOAL_MS)
    _tell(report, f"{runtime}: resume to the first line", begun)
    beyond = [took - floor_s for took in begun]
    _tell(report, f"{runtime}: resume to the first line, beyond the floor", beyond)
    own = [it.load_begin_s - it.begun_s for it in found]
    _tell(report, f"{runtime}: first line to load, the job's own", own)
    _tell(
        report, f"{runtime}: the job's own load", [it.load_end_s - it.load_begin_s for it in found]
    )


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=20, help="pauses of each runtime")
    parser.add_argument("--mib", type=int, default=8, help="size of the checkpoint")
    report = Report.begin("node.pauses", parser)
    floors = Floors(interpreter_floor_s())
    report.figure("floor: an interpreter to its first line, p50", 1e3 * floors.begin_s, "ms")
    with tempfile.TemporaryDirectory() as name:
        report.disk(Path(name))
        measure(report, "process", "", floors)
        if why := why_no_containers():
            report.say(f"no containers measured: {why}")
        else:
            _measure_podman(report, Path(name), floors)
    report.end()


def _measure_podman(report: Report, directory: Path, interpreter: Floors) -> None:
    tree = detect(f"bench-{os.getpid()}")
    oci_runtime = choose_oci_runtime(tree.mode, "")
    tree.remove()
    with store(directory, oci_runtime) as client:
        started, ended = bare(client, report.options.count)
        left = [end_s - start_s for start_s, end_s in zip(started, ended, strict=True)]
        _tell(report, "floor: a bare podman run until it returns", started)
        _tell(report, "floor: a bare podman wait and rm after that", left)
        floors = Floors(
            interpreter.begin_s + percentile(started, 0.5),
            interpreter.end_s + percentile(left, 0.5),
        )
        settings = PODMAN_TOML.format(at=directory, oci_runtime=client.oci_runtime)
        measure(report, "podman", settings, floors)


def _tell(
    report: Report, name: str, took_s: list[float], *, at_most_ms: float | None = None
) -> None:
    note = (
        f"least {1e3 * min(took_s):.1f}, p99 {1e3 * percentile(took_s, 0.99):.1f} of {len(took_s)}"
    )
    value_ms = 1e3 * percentile(took_s, 0.5)
    report.figure(f"{name}, p50", value_ms, "ms", at_most=at_most_ms, note=note)


if __name__ == "__main__":
    main()
