"""A bad stimulus hurts its sender only: mutated messages as a user, as a node and as nobody, and
handlers that fail at random.

`make fuzz MESSAGES=1000000 SEED=1` is the long form. The master is a real daemon, and so are the
agents whose jobs go on meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from attack.extent import SEED
from attack.site import EVIL, PEOPLE, AttackedSite, attacked_site
from attack.test_authorization import may
from attack.test_doors import frames, known_context, noise, plain, wrapped
from attack.test_messages import JOIN, held, known, running, told_of
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_common.errors import DlqError
from dlq_common.identity.pki import Role
from fuzz.barrage import Barrage, all_say, wrongs
from fuzz.corpus import Mutator, recorded
from support.proofs import proved
from support.waiting import wait_until
from support.wire_methods import every_method

MESSAGES = int(os.environ.get("MESSAGES", "1000000"))
SHORT = 2_000
ROUNDS = 10  # the size of the master is looked at after each
STUMBLES = 0.1  # of the messages: the master is made to fail on some of those
LINES = 0.002  # of the messages are lines with bytes that are no message
MOST_GROWTH = 1.10
SLACK_MIB = 16  # allocators keep so much, also in a short run
# What mallory may do with these does not grow without an end.
LIMITS = """
queued_per_user = 40
submit_rate = 5.0

[retention]
ended_most = 100
"""
# Rows that none of the messages may change, and the owner's column of those that some may.
GUARDED = {"nodes": "", "teams": "", "reservations": "", "tokens": "", "users": "name"}


def rows(site: AttackedSite) -> str:
    """A digest of what only others may change."""
    told = hashlib.sha256()
    with closing(sqlite3.connect(f"file:{site.root}/master/dlq.db?mode=ro", uri=True)) as db:
        for table, owner in GUARDED.items():
            where = f" WHERE {owner} NOT IN ('mallory', '{EVIL}')" if owner else ""
            if table == "nodes":
                where = f" WHERE node_id != '{EVIL}'"
            for row in db.execute(f"SELECT * FROM {table}{where} ORDER BY 1"):
                told.update(repr(row).encode())
    return told.hexdigest()


def size_kib(site: AttackedSite) -> int:
    """The resident size of the master."""
    status = Path(f"/proc/{site.pid('master')}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def crowd(
    site: AttackedSite, jobs: list[str], real: dict[str, list[bytes]], *, stumbles: bool
) -> list[Barrage]:
    """A user, a role of services, a node that speaks as nodes do, and nobody."""
    methods = [method for method in every_method() if method.path != JOIN]
    founder = site.identity("root", Role.ADMIN)
    made = []
    for name, role in (
        ("mallory", PEOPLE["mallory"]),
        (EVIL, Role.NODE),
        ("prism", PEOPLE["prism"]),
    ):
        mutator = Mutator(f"{SEED}/{name}/{stumbles}", known(jobs), real)
        made.append(
            Barrage(
                name, site.api, founder.ca, site.identity(name, role), mutator,
                [*[method for method in methods if may(role, method)] * 6, *methods],
                secret=site.secret, stumbles=stumbles,
            )
        )  # fmt: skip
    joins = [method for method in every_method() if method.path == JOIN]
    nobody = Mutator(f"{SEED}/nobody/{stumbles}", known(jobs), real)
    made.append(Barrage("nobody", site.join, founder.ca, None, nobody, joins, secret=site.secret))
    return made


def lines(site: AttackedSite, count: int, place: Path) -> int:
    """So many lines with bytes that are no TLS, no frames or no requests."""
    chance = random.Random(SEED)
    place.mkdir(exist_ok=True)
    context = known_context(site.identity("mallory", Role.USER), place)
    for number in range(count):
        with suppress(OSError):
            line = plain(site.api) if number % 4 == 0 else wrapped(site.api, context)
            with line:
                line.sendall(noise(chance) if number % 4 == 0 else frames(chance))
    return count


def failed_on(site: AttackedSite, line: Connection) -> bool:
    """Say something on which the master fails, if it has not failed before."""
    with suppress(DlqError):
        Jobs(line).submit(site.ledger_job(0.0, 0))
    return '"event": "handler_failed"' in site.log("master")


async def witness(jobs: Jobs, job_id: str, waits_s: list[float]) -> None:
    """Alice looks at her job again and again; for how long she waited."""
    while True:
        began_s = time.monotonic()
        await asyncio.to_thread(jobs.get, job_id)
        waits_s.append(time.monotonic() - began_s)
        await asyncio.sleep(0.2)


def fuzzed(root: Path, messages: int) -> dict[str, Any]:
    """The whole story; the figures."""
    began_s = time.monotonic()
    with attacked_site(SEED, LIMITS) as site, site.connect_person("alice") as line:
        jobs = Jobs(line)
        real = recorded(site)
        ids = [jobs.submit(site.ledger_job(3_600.0, 0)).job.job_id for _ in range(2)]
        ids.append(jobs.submit(held(site)).job.job_id)
        for job_id in ids[:2]:
            wait_until(lambda: running(jobs, job_id), what=f"job {job_id} runs")  # noqa: B023
        before, guarded = [told_of(jobs, job_id) for job_id in ids], rows(site)
        sizes = [size_kib(site)]
        waits_s: list[float] = []
        master, calm = site.pid("master"), crowd(site, ids, real, stumbles=False)
        for _ in range(ROUNDS):
            share = int(messages * (1.0 - STUMBLES)) // ROUNDS
            asyncio.run(all_say(calm, share, witness(jobs, ids[0], waits_s)))
            lines(site, max(4, int(share * LINES)), root / "keys")
            sizes.append(size_kib(site))
        assert [*wrongs(calm)] == []
        assert site.pid("master") == master
        assert site.is_alive("master")
        assert [told_of(jobs, job_id) for job_id in ids] == before
        assert rows(site) == guarded
        assert site.wrongs() == []

        site.kill("master")
        senders = f"user:mallory,node:{EVIL},user:prism"
        site.start("master", DLQ_DEBUG__FAILPOINT=f"stumble:1@{senders}")
        site.wait_for("master")
        master, hard = site.pid("master"), crowd(site, ids, real, stumbles=True)
        later = []
        for _ in range(3):
            share = int(messages * STUMBLES) // 3
            asyncio.run(all_say(hard, share, witness(jobs, ids[0], waits_s)))
            later.append(size_kib(site))
        print("\n".join(map(str, (*calm, *hard))))  # noqa: T201 - the figures of the run
        with site.connect_person("mallory") as hers:
            wait_until(lambda: failed_on(site, hers), what="the master has failed on purpose")
        faults = site.log("master").count('"event": "handler_failed"')
        assert [*wrongs(hard)] == []
        assert site.pid("master") == master
        assert site.is_alive("master")
        assert [told_of(jobs, job_id) for job_id in ids] == before
        assert rows(site) == guarded
        said = sum(each.said for each in (*calm, *hard))
    took_s = time.monotonic() - began_s
    return {
        "messages": said, "seed": SEED, "real": sum(map(len, real.values())), "methods": len(real),
        "per_s": round(said / took_s), "faults": faults,
        "sizes_mib": [size >> 10 for size in sizes],
        "sizes_with_faults_mib": [size >> 10 for size in later],
        "looks_of_alice": len(waits_s), "longest_look_s": round(max(waits_s), 1),
    }  # fmt: skip


def grew(sizes_mib: list[int]) -> bool:
    """Whether the last rounds are larger than the second, by more than allocators keep."""
    warm_mib = sizes_mib[len(sizes_mib) // 5]
    return max(sizes_mib[-2:]) > MOST_GROWTH * warm_mib + SLACK_MIB


@pytest.mark.long("unit/master/control/loop/test_control_incidents.py", "fuzz/test_mutations.py")
def test_some_thousand_bad_messages_hurt_their_senders_only(tmp_path: Path) -> None:
    found = fuzzed(tmp_path, SHORT)
    print(json.dumps(found))  # noqa: T201 - the figures of the run


@pytest.mark.torture
def test_bad_messages_hurt_their_senders_only_and_the_master_does_not_grow(tmp_path: Path) -> None:
    found = fuzzed(tmp_path, MESSAGES)
    print(json.dumps(found))  # noqa: T201 - the figures of the run
    assert not grew(found["sizes_mib"])
    assert not grew(found["sizes_with_faults_mib"])
    proved("bad messages", crashes=0, changes_by_the_faulty=0, **found)
