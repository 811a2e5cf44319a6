"""The master's CPU for a submit while a thousand people watch other jobs, and while nobody does.

    python -m benchmarks.live.watchers [--watchers N] [--submits N] [--floor] [--json]

A real master without nodes. Each person keeps 15 watches of all jobs of their own, which nothing
happens to. bob submits, one job after another: first alone, then beside the watchers. Then as many
watch everything as operators, so that each of them is told of each submit. Goal of issue 21:
watchers of other jobs cost the loop nothing. With `--floor` also the CPU of one message, of a
server that does nothing but send them (grpc_floor.py).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc import aio, ssl_channel_credentials

from benchmarks.live.crowded_reads import SETTINGS, line_of, submits
from benchmarks.live.grpc_floor import floor_server
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.timed_master import COMMAND, rounds_of
from dlq.v1 import job_service_pb2
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import SERVER_NAME
from dlq_client.line.identity import Identity, load_identity
from dlq_common.identity.pki import Role
from dlq_master.serving import read_authority
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put

if TYPE_CHECKING:
    from dlq.v1.job_service_pb2_grpc import JobServiceAsyncStub
    from dlq_common.identity.pki import Authority

FLOOR_MESSAGES = 20
EACH = 15  # watches of a person; the master's most is 16
MOST_GROWTH = 1.2
LONGEST_ROUND_MS = 30.0


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--watchers", type=int, default=1_000)
    parser.add_argument("--submits", type=int, default=300)
    parser.add_argument("--floor", action="store_true")
    report = Report.begin("live.watchers", parser)
    if report.options.floor:
        with tempfile.TemporaryDirectory() as place, floor_server(Path(place)) as (pid, user):
            asyncio.run(_measure_floor(report, pid, user))
    people = -(-report.options.watchers // EACH)
    users = [User("bob", "user", 5000, 5000, (5000,), 0.0)]
    for number in range(people):
        for uid, role in ((6000, "user"), (7000, "operator")):
            uid += number
            users.append(User(f"{role}{number}", role, uid, uid, (uid,), 0.0))
    with tempfile.TemporaryDirectory() as place, Living(Path(place), SETTINGS, COMMAND) as living:
        living.start_anew(Batch(changes=put(USERS, users)))
        identity = load_identity(living.home)
        assert identity is not None
        authority = read_authority(living.state_dir, "bench")
        asyncio.run(_measure(report, living, identity.address, authority, people))
    report.end()


async def _measure(
    report: Report, living: Living, address: str, authority: Authority, people: int
) -> None:
    own = line_of(address, authority, "bob")
    bob: JobServiceAsyncStub = JobServiceStub(own)
    count: int = report.options.submits
    await submits(bob, count, "warm")

    async def cost_ms(name: str) -> float:
        began_s = cpu_s(living.master.pid)
        await submits(bob, count, name)
        spent_s = cpu_s(living.master.pid) - began_s
        return 1e3 * spent_s / count

    alone_ms = await cost_ms("alone")
    report.figure("CPU of a submit, nobody watches", alone_ms, "ms")
    for role, words in (("user", "other jobs"), ("operator", "everything")):
        lines = [
            line_of(address, authority, f"{role}{number}", Role(role)) for number in range(people)
        ]
        told, watching = [0], asyncio.Semaphore(0)
        readers = [
            asyncio.create_task(_watch(line, told, watching)) for line in lines for _ in range(EACH)
        ]
        for _ in readers:
            await watching.acquire()
        await asyncio.sleep(2.0)
        rounds_of(living.master.pid, living.state_dir)
        report.figure(
            f"CPU of a submit, {len(readers)} watch {words}", await cost_ms(words), "ms",
            at_most=MOST_GROWTH * alone_ms if role == "user" else None,
            note=f"{told[0]} answers",
        )  # fmt: skip
        rounds = rounds_of(living.master.pid, living.state_dir)
        report.figure(
            f"the longest round of the loop, {len(readers)} watch {words}", rounds["longest_ms"],
            "ms", at_most=LONGEST_ROUND_MS, note=f"p99 {rounds['p99_ms']:.2f} ms",
        )  # fmt: skip
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await asyncio.gather(*(line.close() for line in lines))
    await own.close()


async def _measure_floor(report: Report, pid: int, identity: Identity) -> None:
    credentials = ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [
        ("grpc.ssl_target_name_override", SERVER_NAME),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    count: int = report.options.watchers
    lines = [
        aio.secure_channel(identity.address, credentials, options=options)
        for _ in range(-(-count // EACH))
    ]

    async def read(line: aio.Channel, messages: int) -> None:
        ask: Any = line.unary_stream("/dlq.v1.JobService/WatchEvents")
        async for _ in ask(b"%d" % messages):
            pass

    spent_s = []
    for messages in (1, 1 + FLOOR_MESSAGES):
        began_s = cpu_s(pid)
        await asyncio.gather(*(read(lines[it % len(lines)], messages) for it in range(count)))
        spent_s.append(cpu_s(pid) - began_s)
    each_s = (spent_s[1] - spent_s[0]) / (count * FLOOR_MESSAGES)
    report.figure("CPU of one message, of a server that does nothing else", 1e6 * each_s, "us")
    await asyncio.gather(*(line.close() for line in lines))


async def _watch(line: aio.Channel, told: list[int], watching: asyncio.Semaphore) -> None:
    stub: JobServiceAsyncStub = JobServiceStub(line)
    stream = stub.WatchEvents(job_service_pb2.WatchEventsRequest(cursor=-1, gathered=True))
    await stream.wait_for_connection()
    watching.release()
    async for _ in stream:
        told[0] += 1


if __name__ == "__main__":
    main()
