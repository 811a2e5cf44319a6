"""The cost of 500 viewers of `dlq-web` for the master and the server, and the delay of an event.

    python -m benchmarks.commands.viewers [--viewers N] [--events N] [--role user] [--json]

A real master without nodes, and `dlq-web` for all users, each a process of its own. Each viewer is
another person with a token, and keeps a stream of events open. A user submits one job a second. As
operators all viewers are told of each, and as users none is. Then some of them read no more, and
some are cut off without a word. At last each asks for its page every thirty seconds, as an open
page does. Goals of issue 23: the master spends at most 5 % of a core, and 95 of 100 events are told
within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_service_pb2
from dlq_client.line.identity import certified, load_identity, save_identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.serving import read_authority
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from dlq_web.door.tokens import Tokens
from dlq_web.line.calls import MasterLine
from dlq_web.line.methods import named
from dlq_web.line.scope import Scope
from support.ports import free_ports

T = TypeVar("T")
_SUBMIT = named("JobService", "SubmitJob")
HOST, EACH_ADDRESS = "127.0.0.1", 90
MASTER_SHARE, SEEN_S = 5.0, 1.0
MUTE, DEAD = 0.05, 0.05  # shares of the viewers
QUIET_S = 10.0
RENEWAL_S = 30.0  # live.js: ANYWAY_MS
IN_TURN = 40  # streams that are opened a second: the server takes 50 requests
SETTINGS = """queued_per_user = 1000000
submit_burst = 1000000
[identity]
web_may_act_for = ["user", "operator"]
[log]
level = "warning"
"""


class Viewer:
    """A connection with a stream of events, and when each of them came."""

    def __init__(self, port: int, number: int, token: str) -> None:
        """Its address is one of many: the server takes 200 connections of each."""
        self._port, self._mine = port, (f"127.0.0.{2 + number // EACH_ADDRESS}", 0)
        address = f"{HOST}:{port}"
        self._head = f"Host: {address}\r\nAuthorization: Bearer {token}\r\n"
        self.seen: dict[str, float] = {}

    async def open(self) -> None:
        """Ask for the stream, and wait for its first bytes. A refused viewer comes back."""
        while True:
            self.reader, self.writer = await self._connected()
            self.writer.write(f"GET /v1/events HTTP/1.1\r\n{self._head}\r\n".encode())
            if b"200" in await self.reader.readline():
                return
            self.writer.close()
            await asyncio.sleep(1.0)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self._port, local_addr=self._mine)

    async def read(self) -> None:
        """Note each job that is told of, for as long as the stream lasts."""
        while line := await self.reader.readline():
            if line.startswith(b"data: ") and b"job_submitted" in line:
                name = json.loads(line[6:])["job"]["name"]
                self.seen.setdefault(name, time.perf_counter())

    def mute(self) -> None:
        """Read nothing from now on, and leave no room for what comes."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport reads too

    async def page(self) -> int:
        """The status of the first page, on a connection of its own."""
        reader, writer = await self._connected()
        writer.write(f"GET / HTTP/1.1\r\n{self._head}Connection: close\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        await reader.read()
        writer.close()
        return status


@contextmanager
def served(living: Living, port: int) -> Iterator[subprocess.Popen[str]]:
    """The process of `dlq-web`, which has its identity and its tokens already."""
    place = living.root / "web"
    config = place / "web.toml"
    config.write_text(
        f'[page]\norigin = "http://127.0.0.1:{port}"\n[listen]\naddress = "127.0.0.1:{port}"\n'
        f'[service]\nstate_dir = "{place}"\nlogin_socket = "{place}/none"\n'
        '[log]\nlevel = "warning"\n'
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "dlq_web.daemon", "serve", "--config", str(config)], text=True
    )
    try:
        while not answers(port):
            time.sleep(0.05)
        yield server
    finally:
        server.terminate()
        server.wait()


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def prepared(living: Living, people: list[User]) -> list[str]:
    """The identity of the service lies in its directory, and one token for each of these."""
    place, clock = living.root / "web", SteadyClock()
    authority, own = read_authority(living.state_dir, "bench"), load_identity(living.home)
    assert own is not None
    made = new_key_and_csr("portal")
    signed = authority.sign_user(made.request, "portal", Role.WEB, clock.now_s())
    (place / "identity").mkdir(mode=0o700, parents=True)
    identity = certified(made.key, signed, authority.certificate_pem(), own.address)
    save_identity(place / "identity", identity)
    tokens = Tokens(place, clock)
    return [
        await tokens.make(ActsFor(one.name, one.role, None), "bench", Scope.ALL, 3600.0)
        for one in people
    ]


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--viewers", type=int, default=500)
    parser.add_argument("--events", type=int, default=20, help="one a second")
    parser.add_argument("--role", choices=("user", "operator"), default="operator")
    report = Report.begin("commands.viewers", parser)
    people = [
        User(f"viewer{number}", report.options.role, 6000 + number, 6000 + number, (), 0.0)
        for number in range(report.options.viewers)
    ]
    portal = User("portal", "web", 5001, 5001, (), 0.0)
    with tempfile.TemporaryDirectory() as place, Living(Path(place), SETTINGS) as living:
        living.start_anew(Batch(changes=put(USERS, [*people, portal])))
        tokens = asyncio.run(prepared(living, people))
        (port,) = free_ports(1)
        with served(living, port) as server:
            viewers = [Viewer(port, number, token) for number, token in enumerate(tokens)]
            asyncio.run(_measure(report, living, server.pid, viewers))
    report.end()


async def _measure(report: Report, living: Living, server: int, viewers: list[Viewer]) -> None:
    count = len(viewers)
    pids = {"master": living.master.pid, "server": server}
    await _share(report, pids, "nobody looks", asyncio.sleep(QUIET_S))
    for first in range(0, count, IN_TURN):
        group = viewers[first : first + IN_TURN]
        await asyncio.gather(*(one.open() for one in group), asyncio.sleep(1.0))
    await _share(report, pids, f"{count} streams, no event", asyncio.sleep(QUIET_S))

    reading = [asyncio.create_task(one.read()) for one in viewers]
    sent = await _share(report, pids, "an event a second", _submits(report, living))
    _lateness(report, viewers, sent, "all read")

    dead, mute = viewers[: int(DEAD * count)], viewers[int(DEAD * count) :][: int(MUTE * count)]
    for viewer in dead:
        viewer.writer.transport.abort()
    for viewer in mute:
        viewer.mute()
    sent = await _share(report, pids, "the same, a tenth mute or dead", _submits(report, living))
    _lateness(report, viewers[len(dead) + len(mute) :], sent, "a tenth mute or dead")
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    statuses = await _share(report, pids, "pages every 30 s", _pages(viewers))
    refused = sum(status != 200 for status in statuses)
    report.figure("pages that were refused", refused, "", note=f"of {len(statuses)}")


async def _share(
    report: Report, pids: dict[str, int], words: str, work: Coroutine[Any, Any, T]
) -> T:
    """The shares of a core that both processes take while this work is done; its result."""
    before_s = {name: cpu_s(pid) for name, pid in pids.items()}
    began_s = time.perf_counter()
    result = await work
    lasted_s = time.perf_counter() - began_s
    for name, pid in pids.items():
        share = 100 * (cpu_s(pid) - before_s[name]) / lasted_s
        goal = MASTER_SHARE if name == "master" else None
        report.figure(f"{name}, {words}", share, "% of a core", at_most=goal)
    return result


async def _submits(report: Report, living: Living) -> dict[str, float]:
    """When each job was answered, by its name: one a second."""
    identity = load_identity(living.home)
    assert identity is not None
    sent: dict[str, float] = {}
    line = MasterLine(identity, SteadyClock())
    for number in range(report.options.events):
        request = job_service_pb2.SubmitJobRequest(request_id=f"{time.time_ns()}")
        request.spec.name = f"{number}-{request.request_id}"
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        began_s = time.perf_counter()
        await line.call(_SUBMIT, request)
        sent[request.spec.name] = time.perf_counter()
        await asyncio.sleep(max(0.0, 1.0 - (time.perf_counter() - began_s)))
    await line.close()
    return sent


async def _pages(viewers: list[Viewer]) -> list[int]:
    """Every viewer asks once, evenly spread over half a minute."""

    async def ask(viewer: Viewer, after_s: float) -> int:
        await asyncio.sleep(after_s)
        return await viewer.page()

    each_s = RENEWAL_S / len(viewers)
    return await asyncio.gather(*(ask(one, at * each_s) for at, one in enumerate(viewers)))


def _lateness(report: Report, viewers: list[Viewer], sent: dict[str, float], words: str) -> None:
    late_s = [
        max(0.0, one.seen[name] - at_s)
        for one in viewers
        for name, at_s in sent.items()
        if name in one.seen
    ]
    if not late_s:
        report.say(f"{words}: no viewer is told of others' jobs")
        return
    missed = len(viewers) * len(sent) - len(late_s)
    report.figure(
        f"from the answer of a submit until a viewer is told, p95, {words}",
        percentile(late_s, 0.95), "s", at_most=SEEN_S,
        note=f"p50 {percentile(late_s, 0.5):.3f} s, {missed} of {missed + len(late_s)} missed",
    )  # fmt: skip


if __name__ == "__main__":
    main()
