"""The time from the end of a leader until its standby answers, with many queued jobs.

    python -m benchmarks.store.takeover [--jobs N] [--rounds N] [--json]

Two masters share a PostgreSQL server, and a client that knows both is connected to the leader. The
leader's process is killed, or stopped (SIGSTOP), and the client asks until it is answered. The
former leader becomes the standby of the next round. The figures tell the instant of the lease too:
from then on the new leader builds its state. All of it shares one machine. Goals: 3 s for a death,
6 s for a stop.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

from benchmarks.live.restart import fill
from benchmarks.support.conditions import percentile
from benchmarks.support.living import cpu_s
from benchmarks.support.report import Report
from dlq_client.queues import Queues
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite.halves import Reader
from dlq_master.store.sqlite.open import open_database, write
from support.pair_daemons import MASTERS, PairDaemons
from support.postgres_daemons import PostgresDaemons
from support.postgres_site import OLDEST, QUICK, PostgresServer, postgres_site, programs
from support.waiting import wait_until

GOALS_S = {"killed": 3.0, "stopped": 6.0}
PATIENCE_S = 300.0
READY_S = 120.0


class FilledPair(PairDaemons):
    """A pair whose rows hold queued jobs from the beginning."""

    def __init__(self, root: Path, server: PostgresServer, jobs: int) -> None:
        super().__init__(root, server, agents=())
        self._jobs = jobs

    def master(self, *words: str) -> str:
        if words[0] == "copy-store" and self._jobs:
            path = self.root / "master" / "dlq.db"
            fill(path, 0, 1, self._jobs)
            _note_now(path)
        return PostgresDaemons.master(self, *words)


def _note_now(path: Path) -> None:
    """The jobs are of long ago; a master does not believe a clock that is so far ahead of them."""
    with closing(Reader(path)) as reader:
        event = reader.load().last_event + 1
    entry = JournalEvent(kind="job_admitted", time_s=time.time(), seq=event, job_id=JobId(1))
    with closing(open_database(path)) as db, write(db):
        write_batch(db, Batch(events=[entry]))


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=4, help="half of them stop the leader")
    report = Report.begin("store.takeover", parser)
    if programs() is None:
        sys.exit(f"PostgreSQL {OLDEST} or newer is not installed (Debian: postgresql)")
    with tempfile.TemporaryDirectory() as directory, postgres_site(QUICK) as site:
        pair = FilledPair(Path(directory), site.primary, report.options.jobs)
        with pair.up():
            pair.start_standby()
            _measure(report, pair, report.options.rounds)
    report.end()


def _measure(report: Report, pair: FilledPair, rounds: int) -> None:
    took: dict[str, list[tuple[float, ...]]] = {"killed": [], "stopped": []}
    leader, standby = MASTERS
    for number in range(rounds):
        way = "stopped" if number % 2 else "killed"
        _wait_until_ready(pair, standby)
        took[way].append(_taken_over(pair, leader, standby, way))
        if way == "stopped":
            pair.kill(leader)
        pair.start_standby(leader)
        leader, standby = standby, leader
    jobs = report.options.jobs
    for way, each in took.items():
        if not each:
            continue
        whole, lease, serves, cpu = zip(*each, strict=True)
        name = f"{jobs} queued jobs, the leader is {way}, to the first answer"
        report.figure(f"{name}, median", percentile(list(whole), 0.5), "s")
        report.figure(f"{name}, longest", max(whole), "s", at_most=GOALS_S[way])
        report.figure(f"of it until the lease, {way}, median", percentile(list(lease), 0.5), "s")
        report.figure(f"and until it serves, {way}, median", percentile(list(serves), 0.5), "s")
        report.figure(f"CPU of the new leader, {way}, median", percentile(list(cpu), 0.5), "s")


def _wait_until_ready(pair: FilledPair, standby: str) -> None:
    """The standby has read all rows, by the list of the leader."""

    def is_ready() -> bool:
        told = json.loads(pair.said("admin", "leader", "show", "--json"))
        (found,) = (one for one in told["masters"] if one["address"] == pair.addresses[standby])
        return found.get("read_ago_s") is not None and not found.get("reason")

    wait_until(is_ready, what=f"{standby} could lead", timeout_s=READY_S)


def _taken_over(pair: FilledPair, leader: str, standby: str, way: str) -> tuple[float, ...]:
    """Seconds to the answer, of them those until the lease and until the new leader serves, and its
    CPU seconds meanwhile.
    """
    with pair.connect(patience_s=PATIENCE_S) as line:
        queues = Queues(line)
        queues.cluster()
        before_s = cpu_s(pair.pid(standby))
        began_s, began_wall_s = time.monotonic(), time.time()
        if way == "killed":
            pair.kill(leader)
        else:
            pair.freeze(leader)
        queues.cluster()
        whole_s = time.monotonic() - began_s
    lease_s, serves_s = (
        _said_at(pair.log(standby), event) - began_wall_s for event in ("leads", "master_serving")
    )
    return whole_s, lease_s, serves_s, cpu_s(pair.pid(standby)) - before_s


def _said_at(log: str, event: str) -> float:
    """The UTC seconds of the last such line."""
    lines = [json.loads(line) for line in log.splitlines() if f'"event": "{event}"' in line]
    return datetime.fromisoformat(lines[-1]["time"]).timestamp()


if __name__ == "__main__":
    main()
