"""`dlq-master restore`: a copy (safekeeping.py) in the place of the master's state, checked before
anything moves.

Nothing is deleted: the former files of the state directory lie in `replaced-TIME` below it
afterwards. A restore that is cut short leaves no database, and a master refuses to start without
one: run it again.

The audit that is here is longer than the copy's, and stays if it is the same chain; else the copy's
takes its place.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlq_common.errors import ConfigError, DlqError
from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.pki import Authority
from dlq_common.identity.private_files import read_private
from dlq_common.text.instants import format_instant
from dlq_master.rpc.audit.chain import Chain, Head, segments
from dlq_master.rpc.audit.verify import check_end, verify_all
from dlq_master.rpc.people.authorities import DONE, NEXT, SEEDS
from dlq_master.safekeeping import AUDIT, copy_file, name_of, newest_copy
from dlq_master.store.batch import AUDIT_HEAD, COPY
from dlq_master.store.sqlite.backup import SEALED_KEY
from dlq_master.store.sqlite.open import APPLICATION_ID, claim, connect, fault_of, sync

# The database, and what belongs to this one and to no other.
DATABASE: Final = ("dlq.db", "dlq.db-wal", "dlq.db-shm", "dlq.db.commits", "dlq.backup.db")


class RestoreRefused(DlqError):
    """Nothing has been changed."""

    reason = "RESTORE_REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The parts to restore, and their places. `passphrase`: of the CA's key in the copy; `ca_key`:
    one kept apart.
    """

    copy: Path  # of one master, or the directory with all copies: then the newest
    state_dir: Path
    cluster: str
    replace: bool = False
    passphrase: bytes | None = None
    ca_key: Path | None = None
    by: str = ""


def restore(wanted: Restore, now_s: float) -> list[str]:
    """Put the copy in place; returns a line for each step. Raises RestoreRefused or DatabaseInUse
    before it changes anything, OSError when the disk refuses.
    """
    source = newest_copy(wanted.copy)
    state_dir = wanted.state_dir
    state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    held = claim(state_dir / "dlq.db")
    try:
        there = any((state_dir / name).exists() for name in ("dlq.db", "dlq.db-wal"))
        if there and not wanted.replace:
            raise RestoreRefused(
                f"{state_dir} holds a database already",
                hint="--replace sets it aside, and restores the copy",
            )
        known = _check_database(source / "dlq.db")
        key, certificate = _authority(wanted, source)
        keeps = _is_audit_kept(state_dir / AUDIT, source / AUDIT, known)
        said = [f"restored from {source}"]
        aside = _set_aside(state_dir, keeps, now_s)
        if aside is not None:
            said.append(f"what was here lies in {aside}")
        _put(source, state_dir, keeps)
        if key is not None:
            write_public(state_dir / "ca.crt", certificate)
            write_private(state_dir / "ca.key", key)
        for name in (SEEDS, NEXT):
            if (source / name).exists():
                write_private(state_dir / name, (source / name).read_bytes())
        said.append(f"audit: {'the one that was here goes on' if keeps else 'as it was copied'}")
        _record(state_dir / AUDIT, wanted, source, now_s)
        # Last: with the database in place the restore is complete.
        (state_dir / "dlq.db.restored").replace(state_dir / "dlq.db")
        sync(state_dir)
        _give(state_dir)
    finally:
        os.close(held)
    return said


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_database(path: Path) -> Head:
    """The last line of the audit that it knows. RestoreRefused when it cannot be trusted."""
    if not path.is_file():
        raise RestoreRefused(f"{path.parent} holds no dlq.db: it is no copy of a master")
    try:
        with closing(connect(path)) as db:
            if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise RestoreRefused(f"{path} is no database of dlq")
            if fault := fault_of(db):
                raise RestoreRefused(f"{path} is damaged: {fault}", hint="take an older copy")
            meta = dict(db.execute("SELECT key, value FROM meta"))
    except sqlite3.Error as error:
        raise RestoreRefused(f"{path} is damaged: {error}", hint="take an older copy") from None
    return Head.read(meta.get(AUDIT_HEAD))


def _authority(wanted: Restore, source: Path) -> tuple[bytes | None, bytes]:
    """Key and certificate to put in place; no key when the ones that are there are the
    cluster's.
    """
    certificate = (source / "ca.crt").read_bytes()
    key = _key(wanted, source)
    if key is None:
        present = wanted.state_dir / "ca.key"
        if not present.exists():
            raise RestoreRefused(
                "the copy holds no key of the CA, and there is none in the state directory",
                hint="name the file in which you keep it: --ca-key FILE",
            )
        key = read_private(present)
    try:
        authority = Authority.load(key, certificate)
    except ValueError as error:
        raise RestoreRefused(f"the CA of the copy: {error}") from None
    if authority.cluster != wanted.cluster:
        raise RestoreRefused(
            f"the copy is of the cluster {authority.cluster!r}, the configuration of "
            f"{wanted.cluster!r}"
        )
    return key, certificate


def _key(wanted: Restore, source: Path) -> bytes | None:
    if wanted.ca_key is not None:
        return read_private(wanted.ca_key)
    if (source / "ca.key").exists():
        return (source / "ca.key").read_bytes()
    if not (source / SEALED_KEY).exists():
        return None
    if wanted.passphrase is None:
        raise RestoreRefused(
            f"the key of the CA in {source} is encrypted",
            hint="name the file with its passphrase: --passphrase-file FILE",
        )
    try:
        return Authority.unseal((source / SEALED_KEY).read_bytes(), wanted.passphrase)
    except ValueError:
        raise RestoreRefused(f"the passphrase does not open {source / SEALED_KEY}") from None


def _is_audit_kept(here: Path, copied: Path, known: Head) -> bool:
    """Whether the audit that is here is the copy's, and perhaps more. RestoreRefused for a copy
    that is broken.
    """
    verdict = verify_all(copied, known) if copied.exists() or known.lines else None
    present = any(file.exists() for file in segments(here))
    if present and not check_end(here, known) and not verify_all(here, known).broken:
        return True
    if verdict is not None and verdict.broken:
        raise RestoreRefused(f"the audit of the copy is broken: {verdict.broken[0].what}")
    return False


def _set_aside(state_dir: Path, keeps_audit: bool, now_s: float) -> Path | None:
    """Move what will be replaced into a directory of its own; None: there was nothing."""
    names = [name for name in DATABASE if (state_dir / name).exists()]
    names += [name for name in ("ca.key", "ca.crt", NEXT, DONE) if (state_dir / name).exists()]
    if not keeps_audit:
        names += [file.name for file in segments(state_dir / AUDIT) if file.exists()]
    if not names:
        return None
    aside = state_dir / name_of("replaced", now_s)
    aside.mkdir(mode=0o700)
    for name in names:
        # The CA is often the same, and then must never be missing: it is copied.
        if name.startswith("ca."):
            shutil.copy2(state_dir / name, aside / name)
        else:
            (state_dir / name).rename(aside / name)
    sync(aside)
    sync(state_dir)
    return aside


def _put(source: Path, state_dir: Path, keeps_audit: bool) -> None:
    """The database beside its place, marked as a copy; and the audit's files, in theirs."""
    staged = state_dir / "dlq.db.restored"
    copy_file(source / "dlq.db", staged)
    with closing(sqlite3.connect(staged)) as db:
        with db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, 'yes')", [COPY])
        db.execute("PRAGMA journal_mode = DELETE")
    sync(staged)
    if not keeps_audit:
        for file in segments(source / AUDIT):
            if file.exists():
                copy_file(file, state_dir / file.name)


def _record(audit: Path, wanted: Restore, source: Path, now_s: float) -> None:
    """A restore is a change as any other: it stands in the audit."""
    line = {"time": format_instant(now_s), "who": wanted.by, "role": "", "certificate": ""}
    chain = Chain(audit)
    chain.append({**line, "peer": "", "method": "restore", "object": str(source), "decision": "OK"})
    chain.sync()
    chain.close()


def _give(state_dir: Path) -> None:
    """All files belong to the owner of the directory: the account that serves. The targets of its
    links do not.
    """
    owner = state_dir.stat()
    if os.geteuid() != 0:
        return
    for path in state_dir.iterdir():
        if path.is_file() or path.name.startswith("replaced-"):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def check_config(config_path: Path, copy: Path) -> None:
    """ConfigError, with what to do, when there is no configuration yet: the copy has one."""
    if not config_path.exists():
        found = newest_copy(copy) / config_path.name
        hint = (
            f"cp {found} {config_path}"
            if found.exists()
            else "see docs/running/install.md, The master"
        )
        raise ConfigError(f"{config_path} does not exist", hint=hint)
