"""Bad disks, drawn from a seed: each injection is judged by what clients were told before.

An injection at rest changes a file of a dead daemon: a bit, or its end. An injection at work makes
calls of a living writer fail (failing_disk.c). Afterwards everything that was acknowledged is
there, or the next start refuses, or says what is lost. A refusal names the file and the remedy.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from dlq_common.errors import DlqError
from dlq_master.model.ids import JobId
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.audit.chain import Head
from dlq_master.rpc.audit.verify import verify_all
from dlq_master.rpc.audit.writer import KnownHead
from dlq_master.shipping.chain import rebuild
from dlq_master.shipping.place import Directory
from dlq_master.store.batch import AUDIT_HEAD, Batch
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database, read_meta
from dlq_nodeagent.model.port import ExitWhy
from dlq_nodeagent.shim.binary import ensure_shim
from dlq_nodeagent.state.journal import FileJournal, JournalDamaged, NodeRecord, RankRecord
from support.disk_writers import RANKS, a_record
from support.fake_clock import FakeClock
from support.process_box import process_box
from support.shipped_site import ShippedSite, content_of
from support.stored_values import a_job
from support.waiting import wait_until

SPEC = b"\x01" * 700
JOBS = 40
COMMITS = 120
REMEDY = re.compile(
    r"\b(restore|dlq-master init|make room|look at|move the file|older chain)\b"
)  # in the product's own words
CODES = (0, 1, 3, 137)
NO_FIFOS = shutil.ignore_patterns("ctl")
FAULTS = ("sync", "eio", "enospc", "short")
STALL_S = float(os.environ.get("STALL_S", "1"))
WRITER_FILES = ("dlq.db-wal", "dlq.db", "dlq.db.commits")
# Commits until a failure, as support of test_store_disk.py does; prints what was acknowledged.
COMMIT_UNTIL_FAILURE = """
import asyncio, json, sys
from pathlib import Path
from support.disk_campaign import COMMITS, SPEC
from support.stored_values import a_job
from dlq_common.errors import DlqError
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.halves import Writer

async def main():
    accepted, failure = [], ""
    try:
        writer = Writer(Path(sys.argv[1]))
    except (DlqError, OSError) as error:
        print(json.dumps([accepted, f"{error} {getattr(error, 'hint', '')}"]))
        return
    for number in range(1, COMMITS + 1):
        try:
            await writer.commit(Batch(jobs=[a_job(number)], specs=[(JobId(number), SPEC)]))
        except Exception as error:
            failure = str(error)
            break
        accepted.append(number)
        print(number, file=sys.stderr, flush=True)  # acknowledged, whatever comes
    print(json.dumps([accepted, failure]), flush=True)
    import os
    os._exit(0)  # as after a kill: no orderly end

asyncio.run(main())
"""


class FalseAck(AssertionError):
    """Something was acknowledged, and is gone, other, or not told."""


@dataclass(slots=True)
class Campaign:
    """The templates that injections copy, and the outcomes so far."""

    root: Path
    library: str = ""  # failing_disk.so; "": no injections at work
    outcomes: Counter[str] = field(default_factory=Counter)
    _made: set[str] = field(default_factory=set)

    def run(self, kinds: Sequence[str], count: int, seed: int) -> Counter[str]:
        """So many injections, the kinds in turn. Raises FalseAck for the first bad one."""
        for number in range(count):
            kind = kinds[number % len(kinds)]
            dice = random.Random(f"{seed}/{number}")
            place = self.root / "case"
            shutil.rmtree(place, ignore_errors=True)
            try:
                found = KINDS[kind](self, place, dice)
            except FalseAck as wrong:
                raise FalseAck(f"injection {number} of seed {seed} ({kind}): {wrong}") from None
            self.outcomes[f"{kind}: {found}"] += 1
        return self.outcomes

    def faulty(self, file: str, fault: str, after: int) -> dict[str, str]:
        """The environment of a process for which calls on this file fail."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": self.library,
            "DISK_FILE": file,
            "DISK_FAULT": fault,
            "DISK_AFTER": str(after),
        }

    def template(self, name: str, make: Callable[[Path], object]) -> Path:
        """A directory that is made once."""
        path = self.root / f"template-{name}"
        if name not in self._made:
            self._made.add(name)
            make(path)
        return path


# --- harm ---------------------------------------------------------------------------------------


def harm(path: Path, dice: random.Random) -> str:
    """Turn a bit, zero a sector, or cut the end."""
    data = bytearray(path.read_bytes())
    kind = dice.choice(("bit", "bit", "bit", "sector", "cut"))
    at = dice.randrange(len(data.rstrip(b"\0")) or len(data))  # not in room that waits
    if kind == "bit":
        data[at] ^= 1 << dice.randrange(8)
    elif kind == "sector":
        at -= at % 512
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    else:
        del data[at:]
    path.write_bytes(bytes(data))
    return f"{kind} at {at} of {path.name}"


def refused(words: str, file: str) -> str:
    """A refusal that helps. Raises FalseAck for another one."""
    if file not in words or not REMEDY.search(words):
        raise FalseAck(f"a refusal without file or remedy: {words}")
    return "refused"


# --- the master's files -------------------------------------------------------------------------


def make_master(path: Path) -> None:
    """A master that was killed: some of its jobs are in the database, some in the log."""
    living = path.with_name("living")
    living.mkdir()
    create_database(living / "dlq.db")
    writer = Writer(living / "dlq.db")
    known = KnownHead(Head.read(read_meta(living / "dlq.db", AUDIT_HEAD)))
    audit = Audit(living / "audit.jsonl", FakeClock(), known=known)
    writer.tell_of(audit.writer)

    async def work() -> None:
        for number in range(1, JOBS + 1):
            await audit.recorded(None, "submit", str(number), "OK")
            batch = Batch(jobs=[a_job(number)], specs=[(JobId(number), SPEC)], meta={"copy": "no"})
            await writer.commit(batch)
            if number == JOBS // 2:
                writer._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    asyncio.run(work())
    shutil.copytree(living, path)
    audit.close()
    writer.close()


def judge_master(directory: Path, accepted: Sequence[int]) -> str:
    """Start on it, as a master does."""
    database = directory / "dlq.db"
    try:
        writer = Writer(database)
    except DlqError as error:
        return refused(f"{error} {error.hint}", "dlq.db")
    except OSError as error:
        raise FalseAck(f"a start that fails without a remedy: {error}") from None
    reader = Reader(database)
    try:
        jobs = {int(job.job_id): job for job in reader.load().jobs}
        specs = {number: reader.spec(JobId(number)) for number in jobs}
    finally:
        reader.close()
        writer.close()
    lost = {job for batch in writer.lost for job in batch.jobs}
    missing = {*accepted} - jobs.keys()
    if missing - lost:
        raise FalseAck(f"jobs {sorted(missing - lost)} are gone, and nothing says so")
    changed = [one for one in jobs if jobs[one] != a_job(one) or specs[one] != SPEC]
    if changed:
        raise FalseAck(f"jobs {changed} are not what was accepted")
    return "told what is lost" if writer.lost else "whole"


def master_file(name: str) -> Callable[[Campaign, Path, random.Random], str]:
    """Harm one file of the dead master."""

    def inject(campaign: Campaign, place: Path, dice: random.Random) -> str:
        shutil.copytree(campaign.template("master", make_master), place)
        what = harm(place / name, dice)
        try:
            return judge_master(place, range(1, JOBS + 1))
        except FalseAck as wrong:
            raise FalseAck(f"{what}: {wrong}") from None

    return inject


def audit_file(campaign: Campaign, place: Path, dice: random.Random) -> str:
    shutil.copytree(campaign.template("master", make_master), place)
    before = (place / "audit.jsonl").read_bytes()
    what = harm(place / "audit.jsonl", dice)
    if (place / "audit.jsonl").read_bytes() == before:
        return "whole"
    known = Head.read(read_meta(place / "dlq.db", AUDIT_HEAD))
    verdict = verify_all(place / "audit.jsonl", known)
    if not verdict.broken and not verdict.torn:
        raise FalseAck(f"{what}: the audit is other, and counts as whole")
    return "told what is broken"


READ_UNTIL_FAILURE = """
import json, sys
from pathlib import Path
from support.disk_campaign import SPEC
from dlq_common.errors import DlqError
from dlq_master.model.ids import JobId
from dlq_master.store.sqlite.halves import Reader, Writer

path, failure, found = Path(sys.argv[1]), "", 0
try:
    Writer(path).close()
    reader = Reader(path)
    jobs = reader.load().jobs
    assert len(jobs) == int(sys.argv[2]), f"only {len(jobs)} jobs were read"
    assert all(reader.spec(job.job_id) == SPEC for job in jobs)
except (DlqError, OSError) as error:
    failure = f"{error} {getattr(error, 'hint', '')}"
print(json.dumps(failure))
"""


def failing_reads(campaign: Campaign, place: Path, dice: random.Random) -> str:
    """A start whose reads fail at some moment; then the disk is well, and the next one starts."""
    shutil.copytree(campaign.template("master", make_master), place)
    file = dice.choice(("dlq.db-wal", "dlq.db", "dlq.db.commits"))
    done = subprocess.run(
        [sys.executable, "-c", READ_UNTIL_FAILURE, str(place / "dlq.db"), str(JOBS)],
        env=campaign.faulty(file, "read", dice.randrange(1, 40)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    what = f"reads of {file}"
    if done.returncode != 0:
        raise FalseAck(f"{what}: a start that is not refused: {done.stderr[-1500:]}")
    failure = json.loads(done.stdout)
    try:
        if failure:
            refused(failure, "dlq.db")
        found = judge_master(place, range(1, JOBS + 1))
    except FalseAck as wrong:
        raise FalseAck(f"{what}: {wrong}") from None
    return f"{'refused' if failure else 'went on'}, then {found}"


def stalled_syncs(campaign: Campaign, place: Path, dice: random.Random) -> str:
    """A sync that takes STALL_S. Half of the writers are killed meanwhile."""
    place.mkdir()
    create_database(place / "dlq.db")
    file, killed = dice.choice(WRITER_FILES), dice.random() < 0.5
    told = place / "stalls"
    stall = {"DISK_STALL_MS": str(round(STALL_S * 1000)), "DISK_TOLD": str(told)}
    writer = subprocess.Popen(
        [sys.executable, "-c", COMMIT_UNTIL_FAILURE, str(place / "dlq.db")],
        env={**campaign.faulty(file, "stall", dice.randrange(1, 60)), **stall},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if killed:
        while writer.poll() is None and not told.exists():
            time.sleep(0.005)
        writer.kill()
    _, said = writer.communicate(timeout=STALL_S + 120)
    accepted = [int(line) for line in said.splitlines() if line.isdecimal()]
    if not killed and len(accepted) != COMMITS:
        raise FalseAck(f"a stall of {file}: the writer went on only to {len(accepted)}: {said}")
    try:
        found = judge_master(place, accepted)
    except FalseAck as wrong:
        raise FalseAck(f"a stall of {file} after {len(accepted)}: {wrong}") from None
    return f"{'killed' if killed else 'went on'}, then {found}"


def failing_calls(campaign: Campaign, place: Path, dice: random.Random) -> str:
    """A living writer whose disk fails; then the disk is well, and the next one starts."""
    place.mkdir()
    create_database(place / "dlq.db")
    file, fault = dice.choice(WRITER_FILES), dice.choice(FAULTS)
    done = subprocess.run(
        [sys.executable, "-c", COMMIT_UNTIL_FAILURE, str(place / "dlq.db")],
        env=campaign.faulty(file, fault, dice.randrange(1, 60)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise FalseAck(f"{fault} of {file}: the writer died: {done.stderr[-1500:]}")
    accepted, failure = json.loads(done.stdout)
    try:
        if failure:
            refused(failure, "dlq.db")
        found = judge_master(place, accepted)
    except FalseAck as wrong:
        raise FalseAck(f"{fault} of {file} after {len(accepted)}: {wrong}") from None
    return f"{'stopped' if failure else 'went on'}, then {found}"


# --- what was shipped ---------------------------------------------------------------------------


def make_shipped(path: Path) -> None:
    site = ShippedSite(path)
    shipper = site.shipper()
    states = []
    for _ in range(6):
        shipper.cycle()
        states.append(site.content())
        site.commit(3)
    site.writer.close()
    (path / "states.json").write_text(json.dumps(states))


def shipped_files(campaign: Campaign, place: Path, dice: random.Random) -> str:
    template = campaign.template("shipped", make_shipped)
    states = json.loads((template / "states.json").read_text())
    shutil.copytree(template / "there", place / "there")
    files = sorted((place / "there").rglob("0*"))
    harmed = dice.choice(files)
    what = harm(harmed, dice)
    try:
        made = rebuild(Directory(place / "there"), place / "rebuilt.db")
    except DlqError as error:
        return refused(str(error), harmed.name)  # with its hint
    if made.said and not any(str(harmed) in said for said in made.said):
        raise FalseAck(f"{what}: what is lost is told without the file: {made.said}")
    if content_of(place / "rebuilt.db") not in states:
        raise FalseAck(f"{what}: the recovered database is one that never was")
    if content_of(place / "rebuilt.db") != states[-1] and not made.said:
        raise FalseAck(f"{what}: an older state is recovered, and nothing says so")
    return "told what is lost" if made.said else "whole"


# --- the agent's files --------------------------------------------------------------------------


def make_ends(path: Path) -> None:
    """Attempts whose shims have ended; each record is the shim's own."""
    with process_box(path, "none") as box:
        for number, code in enumerate(CODES, 1):
            handle = box.sh(f"exit {code}")
            assert box.wait_exit(handle).code == code
            shutil.copytree(box.path(handle), path / f"kept-{number}", ignore=NO_FIFOS)


def exit_record(campaign: Campaign, place: Path, dice: random.Random) -> str:
    """Harm a shim's record while no agent lives. The next agent reads it, or says that it cannot
    and counts the end as unknown.
    """
    template, number = campaign.template("ends", make_ends), dice.randrange(len(CODES)) + 1
    attempt = place / "attempts" / f"{number}.1.0"
    shutil.copytree(template / f"kept-{number}", attempt)
    what = harm(attempt / "exit.json", dice)
    return ended(place, CODES[number - 1], what)


def ended(place: Path, code: int, what: str) -> str:
    """The end of the one attempt, as an agent that starts now tells it."""
    with capture_logs() as said, process_box(place, "none") as box:
        (handle,) = box.runtime.recover()
        found = box.wait_exit(handle)
    if found.code == code and found.why is ExitWhy.EXITED:
        return "whole"
    if (found.code, found.why) != (None, ExitWhy.SHIM_LOST):
        raise FalseAck(f"{what}: a wrong end: {found}")
    told = [one for one in said if one["event"] == "exit_record_damaged"]
    if not told:
        raise FalseAck(f"{what}: the end is lost, and nothing says so")
    return refused(f"{told[0]['file']} {told[0]['remedy']}", f"{handle.key}/exit.json.damaged")


SYNCED, UNSYNCED = 6, 2
NODE = NodeRecord(highest_epoch=1005, sequence_limit=3000)


def make_agent(path: Path) -> None:
    """Ranks whose last records were synced, and some behind them that were not."""
    journal = FileJournal(path)
    journal.load()
    journal.save_node(NODE)
    for number in range(SYNCED + UNSYNCED):
        for state in ("launching", "running"):
            journal.save_rank(a_record(number, state))
        if number == SYNCED - 1:
            journal.sync()


def agent_journal(name: str) -> Callable[[Campaign, Path, random.Random], str]:
    def inject(campaign: Campaign, place: Path, dice: random.Random) -> str:
        shutil.copytree(campaign.template("agent", make_agent), place)
        what = harm(place / name, dice)
        with capture_logs() as said:
            journal = FileJournal(place)
            try:
                node, ranks = journal.load()
            except JournalDamaged as error:
                return refused(str(error), name)
        if node != NODE:
            raise FalseAck(f"{what}: another node record: {node}")
        found = judge_ranks(ranks, what)
        lacks = [one for one in range(SYNCED) if found.get(one) != "running"]
        if lacks and not journal.damaged():
            raise FalseAck(f"{what}: records {lacks} are gone, and nothing is put aside")
        if journal.damaged():
            told = [one for one in said if one["event"] == "rank_log_damaged"]
            return refused(f"{told[0]['file']} {told[0]['remedy']}", journal.damaged()[0].name)
        return "whole"

    return inject


def judge_ranks(ranks: Sequence[RankRecord], what: str) -> dict[int, str]:
    """The states of ranks by their numbers. Raises FalseAck for one that nobody recorded."""
    known = {a_record(number, "running").launch.key: number for number in range(RANKS)}
    found = {known.get(rank.launch.key, -1): rank.state.value for rank in ranks}
    for rank in ranks:
        if rank != a_record(known.get(rank.launch.key, -1), rank.state.value):
            raise FalseAck(f"{what}: a rank that never was: {rank.launch.key}")
    return found


# --- writers at work, whose disk gets well again ------------------------------------------------


def at_work(
    campaign: Campaign, place: Path, dice: random.Random, kind: str, files: Sequence[str]
) -> tuple[list[Any], str]:
    """Run a writer of support.disk_writers. Its acknowledgements, and a word for the fault."""
    place.mkdir()
    file, fault = dice.choice(files), dice.choice((*FAULTS, "stall"))
    what = f"{fault} of {file}"
    done = subprocess.run(
        [sys.executable, "-m", "support.disk_writers", kind, str(place / "here"), place / "well"],
        env={
            **campaign.faulty(file, fault, dice.randrange(1, 15)),
            "DISK_STALL_MS": str(round(STALL_S * 1000)),
            "DISK_WELL": str(place / "well"),
        },
        capture_output=True,
        text=True,
        timeout=STALL_S + 120,
    )
    if done.returncode != 0:
        raise FalseAck(f"{what}: the writer died: {done.stderr[-1500:]}")
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    failed = [told for word, told in said if word == "failed"]
    named = file if file.startswith(("audit", "ranks", "node")) else "there"
    for words in failed:
        if named.partition(".")[0] not in words:
            raise FalseAck(f"{what}: a failure that names no file: {words}")
    is_hurt = "failed and went on" if failed else "went on"
    return [told for word, told in said if word == "acknowledged"], f"{what}, {is_hurt}"


def journal_at_work(campaign: Campaign, place: Path, dice: random.Random) -> str:
    files = ("ranks.log", "ranks.tmp", "node.tmp")
    told, what = at_work(campaign, place, dice, "journal", files)
    journal = FileJournal(place / "here")
    node, ranks = journal.load()
    found = judge_ranks(ranks, what)
    if node.highest_epoch != max(epoch for name, epoch in told if name == "node"):
        raise FalseAck(f"{what}: the node's record is of {node.highest_epoch}")
    if found != dict.fromkeys(range(RANKS), "running"):
        raise FalseAck(f"{what}: {found}")
    return what


def audit_at_work(campaign: Campaign, place: Path, dice: random.Random) -> str:
    told, what = at_work(campaign, place, dice, "audit", ("audit.jsonl",))
    audit = place / "here" / "audit.jsonl"
    verdict = verify_all(audit)
    if verdict.broken:
        raise FalseAck(f"{what}: {verdict.broken}")
    lines = [json.loads(line) for line in audit.read_bytes().splitlines() if line.endswith(b"}")]
    written = [line["object"] for line in lines if line["decision"] == "OK"]
    if written != told:
        raise FalseAck(f"{what}: acknowledged {told}, and written {written}")
    return what


def shipping_at_work(campaign: Campaign, place: Path, dice: random.Random) -> str:
    told, what = at_work(campaign, place, dice, "shipping", (".part",))
    made = rebuild(Directory(place / "here" / "there"), place / "rebuilt.db")
    if content_of(place / "rebuilt.db") != told[-1]:
        raise FalseAck(f"{what}: what was shipped last is not what is recovered: {made.said}")
    return what


def shim_at_work(campaign: Campaign, place: Path, dice: random.Random) -> str:
    """A rank ends while its shim's disk fails. Its end is told when the disk is well, and nothing
    else is told before.
    """
    fault, code = dice.choice((*FAULTS, "stall")), dice.choice(CODES)
    what, well, told = f"{fault} of an exit record", place / "well", place / "told"
    place.mkdir()
    words = campaign.faulty("exit.tmp", fault, 1) | {
        "DISK_WELL": str(well),
        "DISK_TOLD": str(told),
        "DISK_STALL_MS": str(round(STALL_S * 1000)),
    }
    names = [name for name in words if name.startswith(("LD_", "DISK_"))]
    given = " ".join(shlex.quote(f"{name}={words[name]}") for name in names)
    shim = place / "shim"
    shim.write_text(f'#!/bin/sh\nexec env {given} {shlex.quote(str(ensure_shim()))} "$@"\n')
    shim.chmod(0o755)
    with process_box(place / "state", "none", shim) as box:
        handle = box.sh(f"exit {code}")
        wait_until(told.exists, what="the disk fails", timeout_s=60.0)
        early = box.runtime.poll(handle)
        if early is not None and (early.code, early.why) != (code, ExitWhy.EXITED):
            raise FalseAck(f"{what}: a wrong end: {early}")
        well.touch()
        found = box.wait_exit(handle)
    if (found.code, found.why) != (code, ExitWhy.EXITED):
        raise FalseAck(f"{what}: a wrong end: {found}")
    return f"{fault}, then the true end"


KINDS: dict[str, Callable[[Campaign, Path, random.Random], str]] = {
    "database": master_file("dlq.db"),
    "log": master_file("dlq.db-wal"),
    "record of batches": master_file("dlq.db.commits"),
    "audit": audit_file,
    "shipped": shipped_files,
    "exit record": exit_record,
    "node record": agent_journal("node.json"),
    "rank log": agent_journal("ranks.log"),
    "failing calls": failing_calls,
    "failing reads": failing_reads,
    "stalls": stalled_syncs,
    "journal at work": journal_at_work,
    "audit at work": audit_at_work,
    "shipping at work": shipping_at_work,
    "shim at work": shim_at_work,
}
OTHERS_AT_WORK = ("journal at work", "audit at work", "shipping at work", "shim at work")
AT_WORK = ("failing calls", "failing reads", "stalls", *OTHERS_AT_WORK)
AT_REST = tuple(kind for kind in KINDS if kind not in AT_WORK)
