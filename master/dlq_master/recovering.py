"""`dlq-master recover`: a master from what another one has shipped, on this host.

First the place is taken over. A marker of a higher epoch ends the shipping of the old master. A
master that still lives ends with its shipping. Then the database is put together and checked, and
goes the way of a restored copy (restoring.py). Its epoch is above all that the old master can
reach, so that agents obey it alone.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dlq_common.errors import DlqError
from dlq_common.identity.files import SEEDS_FILE
from dlq_common.text.instants import format_instant
from dlq_common.text.units import approximate_span
from dlq_master.restoring import Restore, restore
from dlq_master.shipping.chain import (
    RECOVERED,
    Recovered,
    heartbeat_of,
    owner_of,
    rebuild,
)
from dlq_master.shipping.place import OWNER, Directory, epoch_of, folder_of
from dlq_master.shipping.status import SUPERSEDED
from dlq_master.store.sqlite.backup import SEALED_KEY
from dlq_master.store.sqlite.open import connect, fault_of, write

# More than the old master can start anew before it notices, and as much as a restored one leaps.
LEAP: Final = 1_000
LEAST_WATCH_S: Final = 3.0
CYCLES_WATCHED: Final = 3


class RecoveryRefused(DlqError):
    """Nothing has been changed."""

    reason = "RECOVERY_REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The place, and what the operator has said. `although_alive`: the name of the host whose
    master may be alive; `again`: of the host that has recovered this place before.
    """

    place: Path
    restore: Restore  # its copy is filled in
    although_alive: str = ""
    again: str = ""
    host: str = field(default_factory=lambda: os.uname().nodename)


def recover(wanted: Recovery, now_s: float, sleep: Callable[[float], object]) -> list[str]:
    """Put a master together; returns a line for each step. Raises RecoveryRefused, RestoreRefused
    and NothingShipped before it changes this host, OSError when a disk refuses.
    """
    place = Directory(wanted.place)
    folders = place.names("")
    if not folders:
        raise RecoveryRefused(f"{wanted.place} holds no shipped master")
    _refuse_second(place, folders[-1], {wanted.again, wanted.host})
    _refuse_living(place, folders, wanted.although_alive, sleep)
    state_dir = wanted.restore.state_dir
    state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    staging = state_dir / "recovering"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        epoch = _take_over(place, folders[-1], wanted.host, now_s)
        made = rebuild(place, staging / "dlq.db")
        _prepare(staging / "dlq.db", epoch)
        _collect(made.folder, staging)
        said = [*made.said, *_losses(place, made)]
        said += restore(replace(wanted.restore, copy=staging), now_s)[1:]
        (state_dir / SUPERSEDED).unlink(missing_ok=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [f"recovered from {made.folder}", *said, f"its epoch is above {epoch}"]


def folder_with_config(place: Path) -> Path:
    """The newest folder that holds a configuration; the place itself when none does."""
    found = sorted(place.glob("e*/master.toml"))
    return found[-1].parent if found else place


# --- helpers, in order of use ---------------------------------------------------------------------


def _refuse_second(place: Directory, folder: str, known: set[str]) -> None:
    """Recoveries on two hosts would be two masters."""
    by = owner_of(place, folder).get(RECOVERED)
    if by and by not in known:
        raise RecoveryRefused(
            f"{place.path} has been recovered before, on {by}",
            hint=f"if that master is gone for good: --again {by}",
        )


def _refuse_living(
    place: Directory, folders: list[str], although: str, sleep: Callable[[float], object]
) -> None:
    """A master that ships renews its heartbeat. Clocks are not compared: it is watched."""
    folder = next((one for one in reversed(folders) if heartbeat_of(place, one)), "")
    first = heartbeat_of(place, folder) if folder else None
    host = str(owner_of(place, folder).get("host", "")) if folder else ""
    if first is None or first.stopped or (although and although == host):
        return
    sleep(max(LEAST_WATCH_S, CYCLES_WATCHED * first.every_s))
    second = heartbeat_of(place, folder)
    if second is not None and second.count == first.count:
        return
    raise RecoveryRefused(
        f"the master on {host} is alive: it ships to {place.path}",
        hint=f"stop it; if it must be replaced although it lives: --although-alive {host}",
    )


def _take_over(place: Directory, folder: str, host: str, now_s: float) -> int:
    """Own an epoch that the old master cannot reach."""
    epoch = epoch_of(folder) + LEAP
    mine = {**owner_of(place, folder), RECOVERED: host, "host": host, "epoch": epoch}
    mine |= {"token": "", "time_s": now_s}
    if not place.create(f"{folder_of(epoch)}/{OWNER}", json.dumps(mine).encode()):
        raise RecoveryRefused(f"another recovery of {place.path} has begun at the same time")
    return epoch


def _prepare(database: Path, epoch: int) -> None:
    """A file of its own, sound, with the epoch of this recovery."""
    try:
        with closing(sqlite3.connect(database)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
        with closing(connect(database, mode="rw")) as db:
            if fault := fault_of(db):
                raise RecoveryRefused(
                    f"the recovered database is damaged: {fault}",
                    hint="restore a backup (docs/running/backup.md)",
                )
            with write(db):
                db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", [str(epoch)])
    except sqlite3.Error as error:
        raise RecoveryRefused(
            f"the recovered database is damaged: {error}",
            hint="restore a backup (docs/running/backup.md)",
        ) from error


def _collect(folder: Path, staging: Path) -> None:
    """The other files of a copy."""
    for name in ("ca.crt", SEALED_KEY, SEEDS_FILE, "master.toml"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, staging / name)
    for file in folder.glob("audit*.jsonl"):
        shutil.copyfile(file, staging / file.name)


def _losses(place: Directory, made: Recovered) -> list[str]:
    """The losses in words: changes that the old master acknowledged."""
    beat = heartbeat_of(place, made.folder.name)
    since_s = made.last.time_s
    if beat is None:
        return [f"changes after {format_instant(since_s)} are lost, if there were any"]
    if beat.sequence <= made.last.sequence:
        since_s = max(since_s, beat.complete_s)
        if beat.stopped:
            return ["the old master stopped in order: nothing is lost"]
    heard = f"the old master was last heard of at {format_instant(beat.time_s)}"
    span = approximate_span(max(0.0, beat.time_s - since_s) + beat.every_s)
    return [f"changes after {format_instant(since_s)} are lost; {heard}: about {span} of work"]
