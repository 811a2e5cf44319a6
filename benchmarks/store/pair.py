"""Durable submits a second on the three places of rows, and the cost of each.

    python -m benchmarks.store.pair [--count N] [--json]

A master answers a submit when its rows are on disk. Here the same submits go to SQLite, to
PostgreSQL without a standby, and to PostgreSQL with a synchronous one. All lie on the disk of /tmp,
and all processes share this machine: the two servers of a pair compete for what two hosts have.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.live.submits import IN_FLIGHT, SETTINGS, submit_many
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq_client.line.identity import load_identity
from support.postgres_site import DURABLE, OLDEST, PostgresSite, postgres_site, programs

SQLITE, ALONE, PAIR = "SQLite", "PostgreSQL alone", "PostgreSQL pair"


class MovedMaster(Living):
    """A master whose rows are moved to a server before it starts."""

    def start_master(self) -> subprocess.Popen[bytes]:
        if not (self.state_dir / "dlq.db.moved").exists():
            self.run("dlq-master", "copy-store", "--to", "postgresql", "--config", str(self.config))
        return super().start_master()


@contextmanager
def living(place: str, root: Path) -> Iterator[tuple[Living, list[int]]]:
    """A master on this place, and the processes of its servers."""
    if place == SQLITE:
        with Living(root, SETTINGS) as found:
            yield found, []
        return
    with postgres_site(DURABLE) as site:
        if place == PAIR:
            site.add_standby()
        store = f'[store]\nbackend = "postgresql"\ndsn = "{site.primary.dsn}"\n'
        allowed = f"allow_asynchronous = {str(place == ALONE).lower()}\n"
        with MovedMaster(root, f"{SETTINGS}{store}{allowed}") as found:
            yield found, _servers(site)


def _servers(site: PostgresSite) -> list[int]:
    """All processes below the directory of the servers."""
    return [
        process.pid
        for process in psutil.process_iter(["name"])
        if process.info["name"] == "postgres" and str(site.primary.home) in _origin(process)
    ]


def _origin(process: psutil.Process) -> str:
    try:
        parent = process.parent()
        words = [*process.cmdline(), *(parent.cmdline() if parent is not None else [])]
    except psutil.Error:
        return ""
    return " ".join(words)


def main() -> None:
    """Measure each place with 1, 8 and 64 in flight."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    report = Report.begin("store.pair", parser)
    if programs() is None:
        sys.exit(f"PostgreSQL {OLDEST} or newer is not installed (Debian: postgresql)")
    with tempfile.TemporaryDirectory() as directory:
        report.disk(Path(directory))
        for place in (SQLITE, ALONE, PAIR):
            root = Path(directory) / place.replace(" ", "-")
            root.mkdir()
            with living(place, root) as (master, servers):
                _measure(report, place, master, servers)
    report.end()


def _measure(report: Report, place: str, master: Living, servers: list[int]) -> None:
    master.run("dlq", "login")
    user = load_identity(master.home)
    assert user is not None
    for in_flight, share in IN_FLIGHT.items():
        count = report.options.count // share
        before = cpu_s(master.master.pid), sum(map(cpu_s, servers))
        total_s, took = asyncio.run(submit_many(user, count, in_flight, brief=True))
        name = f"{place}, {in_flight} in flight"
        report.figure(name, count / total_s, "/s")
        report.figure(f"{name}, p50", 1e3 * percentile(took, 0.5), "ms")
        report.figure(f"{name}, p99", 1e3 * percentile(took, 0.99), "ms")
        spent_s = cpu_s(master.master.pid) - before[0]
        report.figure(f"{name}, CPU of the master for each", 1e6 * spent_s / count, "us")
        if servers:
            spent_s = sum(map(cpu_s, servers)) - before[1]
            report.figure(f"{name}, CPU of the servers for each", 1e6 * spent_s / count, "us")


if __name__ == "__main__":
    main()
