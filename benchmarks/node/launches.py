"""The cost of starting a rank, by runtime, beside the floors.

    python -m benchmarks.node.launches [--count N] [--json]

Measured in one process over a state directory of its own, one rank after another. From
`Runtime.start` to the record that the program runs, and to the record that it has ended without
remains. Floors: a posix_spawn of /bin/true, waited for; and for containers a bare `podman run` of
the same image. The CPU of a shim with its program is told too. It is the floor of a job on a node:
the agent, the master and the client come on top of it (`node.chain`). Containers need root, podman
and a static busybox; without them they are left out, and the text says so.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.live.dispatch import spent_s
from benchmarks.live.starts import launch_floor_s
from benchmarks.node.containers import IMAGE, bare, store, why_no_containers
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_common.clock import SteadyClock
from dlq_nodeagent.cgroups.detect import detect, detect_for_containers
from dlq_nodeagent.model.launch import ContainerPlan, LaunchPlan
from dlq_nodeagent.runtimes.podman.client import choose_oci_runtime
from dlq_nodeagent.runtimes.podman.runtime import PodmanRuntime
from dlq_nodeagent.runtimes.process.runtime import ProcessRuntime
from dlq_nodeagent.shim.binary import ensure_init, ensure_shim
from dlq_nodeagent.shim.contact import ContactFile

SPAWNS = 200


def lives(
    runtime: ProcessRuntime, count: int, box: ContainerPlan | None, first: int = 1
) -> list[list[float]]:
    """Seconds to the start and to the end of each of `count` ranks, of jobs from `first` on."""
    started, ended = [], []
    for number in range(first, first + count):
        plan = LaunchPlan(
            job_id=str(number),
            attempt=1,
            epoch=1,
            node_rank=0,
            argv=("/bin/true",),
            uid=os.getuid(),
            gid=os.getgid(),
            allow_root=True,
            container=box,
        )
        begin_s = time.perf_counter()
        handle = runtime.start(plan)
        while runtime.started(handle) is None and runtime.poll(handle) is None:
            time.sleep(0.0005)
        started.append(time.perf_counter() - begin_s)
        while (record := runtime.poll(handle)) is None:
            time.sleep(0.0005)
        ended.append(time.perf_counter() - begin_s)
        if record.code != 0:
            raise SystemExit(f"a rank did not run: {record}")
        runtime.forget(handle)
    return [started, ended]


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    report = Report.begin("node.launches", parser)
    with tempfile.TemporaryDirectory() as name:
        _measure(report, Path(name))
    report.end()


def _measure(report: Report, directory: Path) -> None:
    report.disk(directory)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    floor_ms = 1e3 * launch_floor_s(SPAWNS)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    report.figure("launch floor: posix_spawn of /bin/true, p50", floor_ms, "ms")
    report.figure("launch floor: CPU of /bin/true", 1e3 * cpu_s / SPAWNS, "ms")
    clock, group = SteadyClock(), f"bench-{os.getpid()}"
    tree, boxes = detect(group), detect_for_containers(group)
    state_dir = directory / "state"
    state_dir.mkdir(mode=0o711)
    contact = ContactFile(state_dir / "contact")
    contact.renew(clock.boottime_s())

    plain = ProcessRuntime(
        state_dir=state_dir,
        contact=state_dir / "contact",
        cgroups=tree,
        shim=ensure_shim(),
        clock=clock,
    )
    lives(plain, 1, None)  # its launcher lives
    below_s = spent_s(os.getpid())[1]
    _tell(report, "process", lambda: lives(plain, report.options.count, None, first=2))
    used_ms = 1e3 * (spent_s(os.getpid())[1] - below_s)
    report.figure("process: CPU of the shim and /bin/true", used_ms / report.options.count, "ms")
    plain.close()
    if why := why_no_containers():
        report.say(f"no containers measured: {why}")
        return
    with store(directory, choose_oci_runtime(tree.mode, "")) as client:
        _tell(report, "bare podman run (floor)", lambda: bare(client, report.options.count))
        contained = PodmanRuntime(
            state_dir=state_dir,
            contact=state_dir / "contact",
            cgroups=tree,
            container_cgroups=boxes,
            shim=ensure_shim(),
            init=ensure_init(),
            client=client,
            clock=clock,
        )
        image = client.ask("image", "inspect", "--format={{.Id}}", IMAGE).strip()
        box = ContainerPlan(image=image, network="none")
        _tell(report, "podman", lambda: lives(contained, report.options.count, box))
        contained.close()
    for each in (tree, boxes):
        each.remove()


def _tell(report: Report, name: str, measure: Callable[[], list[list[float]]]) -> None:
    for what, took in zip(("to its start", "to its end, cleaned up"), measure(), strict=True):
        least, middle = 1e3 * min(took), 1e3 * percentile(took, 0.5)
        note = f"least {least:.1f}, p99 {1e3 * percentile(took, 0.99):.1f}, {len(took)} ranks"
        report.figure(f"{name}: {what}, p50", middle, "ms", note=note)


if __name__ == "__main__":
    main()
