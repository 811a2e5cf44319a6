"""The CPU time of an agent's samplers: GPUs every second, ranks in half a minute, and their report.

    python -m benchmarks.node.samplers [--gpus 8] [--ranks 8] [--rounds N] [--json]

Each part runs many times in this thread, and its CPU time is divided by its period. GPUs are
virtual ones with a script, or real ones through NVML (--devices nvml), which costs what its driver
costs. The disks of a rank are read from /proc, as of a host whose kernel has no account of groups:
that is the dearer way. Its process is this one. Each rank is also recorded, and four of its threads
send all the time: a look at its traffic is then dearest. Goal of issue 25: 1 % of a core with 8
GPUs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.record_files import record_file
from benchmarks.support.report import Report
from dlq.v1 import agent_service_pb2 as wire
from dlq_common.clock import SteadyClock
from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.devices.choose import open_devices
from dlq_nodeagent.devices.watch import GpuWatch
from dlq_nodeagent.line.wire import encode
from dlq_nodeagent.model.messages import Heartbeat
from dlq_nodeagent.profiling.profiles import LOOK_S as LOOK_TRAFFIC_S
from dlq_profiler.records.tail import look

SAMPLE_S, LOOK_S, REPORT_S = 1.0, 10.0, 30.0
CORE_PERCENT = 1.0


def cpu_s(action: Callable[[], object], rounds: int) -> float:
    """CPU time of this thread for one call."""
    begin_s = time.thread_time()
    for _ in range(rounds):
        action()
    return (time.thread_time() - begin_s) / rounds


def measure(report: Report, watch: GpuWatch, rings: Path, ranks: int, rounds: int) -> None:
    """Each part, and the sum as a part of a core."""
    pids = [os.getpid()] * ranks
    watch.look()
    watch.sample()

    def told() -> None:
        watch.sample()
        health = watch.told(True)
        encode(Heartbeat(sequence=1, progress=(), health=health), wire.NodeFacts())

    parts = {
        "sample of all GPUs": (cpu_s(watch.sample, rounds), SAMPLE_S),
        "look at all GPUs": (cpu_s(watch.look, rounds), LOOK_S),
        "report of all GPUs": (cpu_s(told, rounds), REPORT_S),
        "use of disks by all ranks": (
            cpu_s(lambda: [directories.of_processes([pid]) for pid in pids], rounds),
            REPORT_S,
        ),
        "look at the traffic of all ranks": (
            cpu_s(lambda: [look(rings, time.monotonic_ns()) for _ in pids], rounds // 10 + 1),
            LOOK_TRAFFIC_S,
        ),
    }
    for name, (each_s, period_s) in parts.items():
        report.figure(name, each_s * 1e6, "us", note=f"every {period_s:g} s")
    core = sum(each_s / period_s for each_s, period_s in parts.values())
    report.figure("all samplers", 100.0 * core, "% of a core", at_most=CORE_PERCENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--devices", default="", help="nvml: the GPUs of this host")
    report = Report.begin("node.samplers", parser)
    given = report.options
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "state"
        lines = [f"{n}|utilization|{n}\n{n}|power|300\n{n}|clock|1700" for n in range(given.gpus)]
        script.write_text("\n".join(lines))
        devices = open_devices(
            given.devices or f"fake:{given.gpus}xH100-80GB@{script}", node_name="bench"
        )
        watch = GpuWatch(clock=SteadyClock(), devices=devices, in_use=frozenset)
        rings = Path(name) / "rings"
        rings.mkdir()
        (rings / "7-1.dlqprof").write_bytes(record_file(4, 4096))
        measure(report, watch, rings, given.ranks, given.rounds)
    report.end()


if __name__ == "__main__":
    main()
