"""The master's CPU and memory for people who are signed in at `dlq-web`, each with an open page.

    python -m benchmarks.web.people [--people N] [--seconds S] [--json]

A real master without nodes, and the lines and feeds of the web server in this process. Each person
is admitted as by a one-time link, and one stream of events is open for each. Then nothing happens.
Goal of issue 23: 500 viewers cost the master 5 % of a core at most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from benchmarks.live.crowded_reads import SETTINGS
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from benchmarks.support.timed_master import COMMAND
from dlq_client.line.identity import Identity, certified, load_identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.serving import read_authority
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from dlq_web.door.persons import Persons
from dlq_web.door.sessions import Person, WebSessions

MOST_OF_A_CORE = 5.0
SETTLES_S = 10.0


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    report = Report.begin("web.people", parser)
    users = [
        User("portal", "web", 5000, 5000, (), 0.0),
        *(
            User(f"u{number}", "user", 6000 + number, 6000, (), 0.0)
            for number in range(report.options.people)
        ),
    ]
    with tempfile.TemporaryDirectory() as place, Living(Path(place), SETTINGS, COMMAND) as living:
        living.start_anew(Batch(changes=put(USERS, users)))
        asyncio.run(_measure(report, living, _portal(living)))
    report.end()


def _portal(living: Living) -> Identity:
    """The identity of the web server."""
    founder = load_identity(living.home)
    assert founder is not None
    authority, made = read_authority(living.state_dir, "bench"), new_key_and_csr("portal")
    signed = authority.sign_user(made.request, "portal", Role.WEB, time.time())
    return certified(made.key, signed, authority.certificate_pem(), founder.address)


async def _measure(report: Report, living: Living, portal: Identity) -> None:
    count, pid = report.options.people, living.master.pid
    clock = SteadyClock()
    sessions = WebSessions(clock, most=count)
    persons = Persons(lambda: portal, clock, sessions.dismiss)
    began_s, before_mib = cpu_s(pid), _resident_mib(pid)
    people = [await persons.admit(ActsFor(f"u{number}")) for number in range(count)]
    report.figure("CPU of the master for a sign-in", 1e3 * (cpu_s(pid) - began_s) / count, "ms")
    readers = [asyncio.create_task(_read(person)) for person in people]
    await asyncio.sleep(SETTLES_S)
    for name, of in (("the master", pid), ("the web server", os.getpid())):
        began_s, at_s = cpu_s(of), time.monotonic()
        await asyncio.sleep(report.options.seconds)
        share = 100 * (cpu_s(of) - began_s) / (time.monotonic() - at_s)
        goal = MOST_OF_A_CORE if of == pid else None
        report.figure(f"a core, {name}, {count} viewers", share, "%", at_most=goal)
    report.figure("memory of the master, more than before", _resident_mib(pid) - before_mib, "MiB")
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for person in people:
        persons.left(person)
    await persons.close()


async def _read(person: Person) -> None:
    async for _ in person.feed.events():
        pass


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
