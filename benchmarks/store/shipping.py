"""A master that ships: the seconds that a lost host costs, the time to be back, and the price.

    python -m benchmarks.store.shipping [--rounds N] [--jobs N] [--pairs N] [--count N] [--json]

Rounds: clients submit, and the master and its shipping process are killed at a random moment, as
with their host. Lost is the time from the first acknowledged job that the second place has not to
the kill. Back: with so many queued jobs, from the loss of the state directory to the first answer
of the recovered master. The price: the CPU of a submit with shipping and without it, in turn. All
of it shares one machine and one disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.live.restart import answered, fill
from benchmarks.live.submits import SETTINGS, a_spec, calling, submit_many
from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living, cpu_s
from benchmarks.support.report import Report
from dlq.v1 import job_service_pb2
from dlq_client.line.identity import Identity, load_identity
from dlq_master.shipping.chain import rebuild
from dlq_master.shipping.place import Directory
from dlq_master.shipping.status import read_status

SHIPPED = """
[backup]
ca_key = "apart"
[shipping]
directory = "{there}"
same_disk = true
"""
PATIENCE_S = 120.0
CLIENTS = 4


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--count", type=int, default=2_000)
    report = Report.begin("store.shipping", parser)
    with tempfile.TemporaryDirectory() as root:
        report.disk(Path(root))
        if report.options.rounds:
            _tell_losses(report, Path(root) / "losses", report.options.rounds)
        if report.options.jobs:
            _tell_return(report, Path(root) / "return", report.options.jobs)
        if report.options.pairs:
            _tell_price(report, Path(root), report.options.pairs, report.options.count)
    report.end()


def _living(root: Path, *, ships: bool = True) -> Living:
    there = root / "there"
    there.mkdir(parents=True)
    return Living(root, SETTINGS + (SHIPPED.format(there=there) if ships else ""))


def _user(living: Living) -> Identity:
    living.run("dlq", "login")
    user = load_identity(living.home)
    assert user is not None
    return user


def _wait_until_shipped(living: Living, since_s: float) -> None:
    """All that was committed before `since_s` is in the second place."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        status = read_status(living.state_dir)
        if status is not None and not status.failure and status.complete_s > since_s:
            return
        time.sleep(0.02)
    raise TimeoutError(f"nothing is shipped: {read_status(living.state_dir)}")


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --- the seconds that are lost ------------------------------------------------------------------


def _tell_losses(report: Report, root: Path, rounds: int) -> None:
    dice, lost_s, jobs = random.Random(1), [], 0
    with _living(root) as living:
        user = _user(living)
        for number in range(rounds):
            _wait_until_shipped(living, time.time())
            told, killed_s = asyncio.run(_submit_until_death(living, user, number, dice))
            rebuild(Directory(root / "there"), root / "rebuilt.db")
            with closing(sqlite3.connect(root / "rebuilt.db")) as db:
                there = {str(job) for (job,) in db.execute("SELECT job_id FROM jobs")}
            lost = [at_s for job, at_s in told.items() if job not in there]
            lost_s.append(killed_s - min(lost, default=killed_s))
            jobs += len(told)
            living.master.wait()
            living.master = living.start_master()
    for share in (0.5, 0.99, 1.0):
        name = "longest" if share == 1.0 else f"p{100 * share:g}"
        report.figure(f"seconds lost with the host, {name}", percentile(lost_s, share), "s")
    report.figure("of so many submits", jobs, "", note=f"{rounds} kills")


async def _submit_until_death(
    living: Living, user: Identity, number: int, dice: random.Random
) -> tuple[dict[str, float], float]:
    """The jobs that were acknowledged, each with its moment; and the moment of the kill."""
    told: dict[str, float] = {}
    over = asyncio.Event()

    async def client(who: int) -> None:
        async with calling(user) as stub:
            each = 0
            while not over.is_set():
                each += 1
                request = job_service_pb2.SubmitJobRequest(
                    request_id=f"{os.getpid()}-{number}-{who}-{each}", spec=a_spec(), brief=True
                )
                answer = await stub.SubmitJob(request, timeout=30)
                told[answer.job.job_id] = time.time()

    clients = [asyncio.create_task(client(who)) for who in range(CLIENTS)]
    await asyncio.sleep(dice.uniform(1.5, 4.0))
    for pid in (*_children(living.master.pid), living.master.pid):
        os.kill(pid, signal.SIGKILL)
    killed_s = time.time()
    over.set()
    await asyncio.gather(*clients, return_exceptions=True)
    return {job: at_s for job, at_s in told.items() if at_s <= killed_s}, killed_s


# --- the time to be back ------------------------------------------------------------------------


def _tell_return(report: Report, root: Path, jobs: int) -> None:
    with _living(root) as living:
        _user(living)
        living.master.terminate()
        living.master.wait()
        fill(living.state_dir / "dlq.db", 0, 1, jobs)
        began_s = time.time()
        living.master = living.start_master()
        _wait_until_shipped(living, began_s)
        report.figure(f"the first snapshot of {jobs} jobs", time.time() - began_s, "s")
        shutil.copy(living.state_dir / "ca.key", root / "ca.key")
        config = shutil.copy(living.config, root / "master.toml")
        for pid in (*_children(living.master.pid), living.master.pid):
            os.kill(pid, signal.SIGKILL)
        living.master.wait()
        size = sum(one.stat().st_size for one in (root / "there").rglob("*") if one.is_file())
        shutil.rmtree(living.state_dir)
        began_s = time.time()
        living.run(
            "dlq-master", "recover", "--from", str(root / "there"), "--config", str(config),
            "--ca-key", str(root / "ca.key"),
        )  # fmt: skip
        recovered_s = time.time() - began_s
        shutil.copy(config, living.config)
        living.master = living.start_master()
        answered(living.home)
        report.figure(f"recover with {jobs} jobs", recovered_s, "s", note="3 s of it is the watch")
        report.figure("back, to the first answer", time.time() - began_s, "s")
        report.figure("in the second place", size / 1024**2, "MiB")


# --- the price ----------------------------------------------------------------------------------


def _tell_price(report: Report, root: Path, pairs: int, count: int) -> None:
    """Two masters, one of which ships, in turn."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    beside: list[float] = []
    with (
        _living(root / "plain", ships=False) as plain,
        _living(root / "shipping") as shipping,
    ):
        users = {False: _user(plain), True: _user(shipping)}
        masters = {False: plain.master.pid, True: shipping.master.pid}
        _wait_until_shipped(shipping, time.time())
        (child,) = _children(shipping.master.pid)
        for pair in range(pairs):
            for ships in (False, True) if pair % 2 else (True, False):
                before_s, child_s = cpu_s(masters[ships]), cpu_s(child)
                asyncio.run(submit_many(users[ships], count, 8, stretch=pair, brief=True))
                spent[ships].append(1e6 * (cpu_s(masters[ships]) - before_s) / count)
                if ships:
                    beside.append(1e6 * (cpu_s(child) - child_s) / count)
    for ships, name in ((False, "without"), (True, "with")):
        report.figure(
            f"a submit {name} shipping, CPU of the master", percentile(spent[ships], 0.5), "us",
            note=", ".join(f"{one:.0f}" for one in spent[ships]),
        )  # fmt: skip
    report.figure("CPU of the shipping process for each", percentile(beside, 0.5), "us")


if __name__ == "__main__":
    main()
