"""Copies of the whole master, one directory each: what `dlq-master backup` makes and a timer repeats.

A copy holds all that a new host needs (database, CA, configuration), so it is as secret as the CA's
key. It may be made while the master serves and while it does not: SQLite copies the last commit.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from dlq_common.instants import format_instant
from dlq_master.store.backup import BackupFailed, backup
from dlq_master.store.open import sync

# Files besides the database; what the cluster never had is not missed.
KEPT = ("ca.key", "ca.crt", "audit.jsonl")
_NAME = re.compile(r"dlq-\d{8}T\d{9}Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Where from, where to, and how many stay. `keep` 0 keeps all."""

    state_dir: Path
    config_path: Path
    target: Path
    keep: int


def copy_master(copies: Copies, now_s: float) -> Path:
    """Make one copy, whole or not at all; then remove the oldest beyond `keep`. Its directory.

    Raises BackupFailed; copies that were there stay then.
    """
    name = "dlq-" + re.sub(r"[-:.]", "", format_instant(now_s))
    made, unfinished = copies.target / name, copies.target / f".{name}.incomplete"
    try:
        unfinished.mkdir(mode=0o700, parents=True)
        backup(copies.state_dir / "dlq.db", unfinished / "dlq.db")
        for source in (*(copies.state_dir / one for one in KEPT), copies.config_path):
            if source.exists():
                _copy_file(source, unfinished / source.name)
        unfinished.rename(made)
        _remove_oldest(copies)
    except OSError as error:
        raise BackupFailed(f"{error.filename or made}: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


def _copy_file(source: Path, target: Path) -> None:
    """On disk when it returns; the directory around it is closed to others from the first byte on."""
    shutil.copyfile(source, target)
    target.chmod(0o600)
    sync(target)


def _remove_oldest(copies: Copies) -> None:
    found = sorted(path for path in copies.target.iterdir() if _NAME.fullmatch(path.name))
    for path in found[: -copies.keep] if copies.keep else ():
        shutil.rmtree(path)
