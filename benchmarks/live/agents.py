"""Many agents at once: they join, hold their lines, and beat, while plans go on.

    python -m benchmarks.live.agents [--agents 1000] [--jobs 3] [--queued 0] [--rate 5]
        [--seconds 30] [--windows 2] [--policy dlq] [--json]

A real master, and agents of 8 virtual GPUs (`virtual_nodes`) in the process of the benchmark. Each
has its own certificate and a heartbeat every 5 s. `--jobs` jobs for each node fill the cluster, and
tell their steps in the heartbeats. `--queued` more wait. `--rate` of them end in a second, and
others take their place, so that plans go on. Printed: CPU of the master to join an agent, and its
share of a core afterwards. CPU for each heartbeat, with everything else that the master does
meanwhile, and the delay of its answer. Beside it the delay of this process' own timers, by which
answers look later than they are. A bystander tells how much the machine delays any process. The
longest round of the loop, in CPU time: nobody is heard in a round.
Goals: 5,000 agents at half a core and 700 MiB, 100 ms at the 99th percentile, and no round above
30 ms.
With `--rate 0 --jobs 0` they only hold. Goal of issue 8, with `--queued 10000 --rate 20`: 60 % of a
core. Submits of the jobs that take the others' place are timed too.

Before any job comes, the master restarts, and all agents dial it again within 15 s of their own
draw. Printed: how long it takes until the last one is back, and the nodes that were taken for dead.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time

import psutil
from grpc import aio, ssl_channel_credentials

from benchmarks.support.bystander import Bystander, Told
from benchmarks.support.conditions import percentile
from benchmarks.support.crowd import (
    GPUS,
    LEFT,
    WHOLE,
    Crowd,
    children_s,
    replace_ended,
    with_nodes,
)
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.timed_master import COMMAND, rounds_of
from benchmarks.support.virtual_nodes import Fleet
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity
from dlq_master.serving import read_authority

WARM_UP_S = 6.0  # longer than the time between two heartbeats
FOREVER_S = 86_400.0
STALL_MS = 30.0
MOST_MIB = 700.0
LAG_EVERY_S = 0.02
MOST_ROUND_MS = 50.0  # 99 of 100
JITTER_S = 15.0  # nodes.reconnect_jitter


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--policy", default="dlq")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--jobs", type=float, default=3.0, help="for each agent")
    parser.add_argument("--queued", type=int, default=0, help="jobs that wait")
    parser.add_argument("--rate", type=float, default=5.0, help="ends a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of one window")
    parser.add_argument("--windows", type=int, default=2)
    report = Report.begin("live.agents", parser)
    with_nodes(report, _measure, COMMAND)
    report.end()


async def _measure(report: Report, living: Living, identity: Identity) -> None:
    chosen, pid = report.options, living.master.pid
    fleet = Fleet(identity.address, read_authority(living.state_dir, "bench"), chosen.agents, GPUS)
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options=options) as channel:
        begin_s, used_s = time.monotonic(), cpu_s(pid)
        await fleet.join()
        each_s = (cpu_s(pid) - used_s) / chosen.agents
        report.figure(
            f"{chosen.agents} agents join, CPU of the master for each", 1e3 * each_s, "ms",
            note=f"in {time.monotonic() - begin_s:.1f} s; {len(fleet.tally.beats_s)} heartbeats of "
            "those that were there are in it",
        )  # fmt: skip
        await _restart(report, living, fleet)
        pid = living.master.pid
        count = round(chosen.jobs * chosen.agents)
        crowd = Crowd(JobServiceStub(channel), count / chosen.rate if chosen.rate else FOREVER_S)
        await crowd.fill(count, LEFT if chosen.rate else (1.0, 1.0))
        await crowd.fill(chosen.queued, WHOLE)
        replacing = asyncio.create_task(
            replace_ended(crowd, fleet, fleet.tally.counts["completions"])
        )
        await asyncio.sleep(WARM_UP_S)
        gc.collect()
        gc.freeze()  # no search for garbage among all agents delays an answer
        crowd.took_s.clear()
        begin_s, beside_s = time.monotonic(), children_s(pid)
        with Bystander() as bystander:
            await _windows(report, living, fleet)
        _tell_machine(report, bystander.told)
        beside = (children_s(pid) - beside_s) / (time.monotonic() - begin_s)
        _tell_beside(report, beside, crowd.took_s)
        replacing.cancel()
        await asyncio.gather(replacing, return_exceptions=True)
        await fleet.close()


async def _restart(report: Report, living: Living, fleet: Fleet) -> None:
    """The master is killed and starts again; all agents come back."""
    name = f"{report.options.policy}, {report.options.agents} agents"
    living.master.kill()
    living.master.wait()
    begin_s = time.monotonic()
    living.master = await asyncio.to_thread(living.start_master)
    await fleet.come_back(JITTER_S)
    took_s = time.monotonic() - begin_s
    report.figure(f"{name}: all are back after a restart", took_s, "s", at_most=30.0)


def _taken_for_dead(living: Living) -> int:
    """So often a node was missed or lost until now."""
    return sum(
        len(living.run("dlq", "events", "--jsonl", "-t", kind).splitlines())
        for kind in ("node_missed", "node_lost")
    )


async def _windows(report: Report, living: Living, fleet: Fleet) -> None:
    """Tell the means of all windows."""
    chosen, pid, tally = report.options, living.master.pid, fleet.tally
    tally.beats_s.clear()
    rounds_of(pid, living.state_dir)
    dead = await asyncio.to_thread(_taken_for_dead, living)
    begin_s, used_s, lags_s = time.monotonic(), cpu_s(pid), list[float]()
    lagging = asyncio.create_task(_lag(lags_s))
    for _ in range(chosen.windows):
        await asyncio.sleep(chosen.seconds)
        fleet.check()
        report.say(f"  {len(tally.beats_s)} heartbeats so far")
    took_s, used_s = time.monotonic() - begin_s, cpu_s(pid) - used_s
    lagging.cancel()
    name = f"{chosen.policy}, {chosen.agents} agents"
    report.figure(f"{name}: CPU of the master", 100 * used_s / took_s, "%", at_most=50.0)
    beats_s = tally.beats_s
    report.figure(f"{name}: CPU for each heartbeat", 1e6 * used_s / len(beats_s), "us")
    report.figure(f"{name}: heartbeat, p50", 1e3 * percentile(beats_s, 0.5), "ms")
    report.figure(f"{name}: heartbeat, p99", 1e3 * percentile(beats_s, 0.99), "ms", at_most=100.0)
    own_ms = 1e3 * percentile(lags_s, 0.99)
    report.figure(f"{name}: this process' own delay, p99", own_ms, "ms")
    rounds = rounds_of(pid, living.state_dir)
    report.figure(
        f"{name}: longest round of the loop", rounds["longest_ms"], "ms",
        at_most=STALL_MS, note=f"p99 {rounds['p99_ms']:.2f} ms",
    )  # fmt: skip
    used_mib = psutil.Process(pid).memory_info().rss / (1 << 20)
    report.figure(f"{name}: memory of the master", used_mib, "MiB", at_most=MOST_MIB)
    for what in ("starts", "completions"):
        report.say(f"  {what} so far: {tally.counts[what]}")
    report.figure(f"{name}: round of the loop, p99", rounds["p99_ms"], "ms", at_most=MOST_ROUND_MS)
    dead = await asyncio.to_thread(_taken_for_dead, living) - dead
    report.figure(f"{name}: taken for dead", dead, "", at_most=0)


async def _lag(lags_s: list[float]) -> None:
    """Note by how much a timer of this process comes too late: heartbeats wait as long here."""
    while True:
        due_s = time.perf_counter() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        lags_s.append(time.perf_counter() - due_s)


def _tell_machine(report: Report, told: Told) -> None:
    """The delay of a process that has nothing to do with all this."""
    report.figure("a bystander's delay, p50", told.late_p50_ms, "ms")
    report.figure("a bystander's delay, p99", told.late_p99_ms, "ms")
    report.figure(
        "a bystander's longest piece of work, CPU", told.longest_cpu_ms, "ms",
        note=f"p50 {told.cpu_p50_ms:.2f} ms",
    )  # fmt: skip


def _tell_beside(report: Report, share: float, submits_s: list[float]) -> None:
    """The load of the master's children, and how long submits took meanwhile."""
    name = f"{report.options.policy}, {report.options.agents} agents"
    report.figure(f"{name}: CPU of its planner and its twin", 100 * share, "%")
    for share in (0.5, 0.99) if submits_s else ():
        took_ms = 1e3 * percentile(submits_s, share)
        report.figure(f"{name}: submit, p{100 * share:g}", took_ms, "ms")


if __name__ == "__main__":
    main()
