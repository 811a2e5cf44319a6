"""Copies of the whole master, one directory each: `dlq-master backup` makes them and a timer
repeats it.

A copy holds everything that a new host needs. These are the database, the audit's files, the
configuration, and the CA (its key in clear, encrypted, or not at all: [backup] ca_key). It may be
made while the master serves and while it does not: SQLite copies the last commit. After each copy a
program of the site may take it elsewhere.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dlq_common.errors import ConfigError
from dlq_common.identity.pki import Authority
from dlq_common.identity.private_files import read_private
from dlq_common.text.instants import format_instant
from dlq_master.control.config import BackupConfig
from dlq_master.rpc.audit.chain import segments
from dlq_master.rpc.people.authorities import NEXT, SEEDS
from dlq_master.store.port import BackupFailed
from dlq_master.store.sqlite.backup import FAILURE, SEALED_KEY, STAMP, backup
from dlq_master.store.sqlite.open import sync

AUDIT: Final = "audit.jsonl"
_NAME = re.compile(r"dlq-\d{8}T\d{9}Z")
LONGEST_WORDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Where from, where to, and how many stay. `keep` 0 keeps all."""

    state_dir: Path
    config_path: Path
    target: Path
    keep: int
    settings: BackupConfig = field(default_factory=BackupConfig)


def check(settings: BackupConfig) -> None:
    """ConfigError for settings that contradict each other, or would let the CA's key out in
    clear.
    """
    if settings.ca_key not in ("clear", "encrypted", "apart"):
        raise ConfigError("backup.ca_key is clear, encrypted or apart", key="backup.ca_key")
    if (settings.ca_key == "encrypted") != bool(settings.passphrase_file):
        raise ConfigError(
            'backup.passphrase_file goes with backup.ca_key = "encrypted", and only with it',
            key="backup.passphrase_file",
        )
    if settings.hook and settings.ca_key == "clear":
        raise ConfigError(
            'backup.hook takes copies elsewhere, and backup.ca_key is "clear"',
            hint='set backup.ca_key to "encrypted" or "apart": the CA\'s key must not leave in '
            "clear",
            key="backup.ca_key",
        )
    if settings.hook and not Path(settings.hook[0]).is_absolute():
        raise ConfigError("backup.hook begins with an absolute path", key="backup.hook")


def copy_master(copies: Copies, now_s: float) -> Path:
    """Make one copy, whole or not at all; then remove the oldest beyond `keep`. Its directory.

    Raises BackupFailed; copies that were there stay then. The state directory keeps how it went.
    """
    try:
        made = _copy_master(copies, now_s)
    except BackupFailed as error:
        _note_failure(copies.state_dir, error.what)
        raise
    (copies.state_dir / FAILURE).unlink(missing_ok=True)
    _note(copies.state_dir / STAMP, made.name)
    return made


def run_hook(copies: Copies, made: Path) -> None:
    """Give a copy to the site's program. Raises BackupFailed when it fails or takes too long; the
    copy stays.
    """
    settings = copies.settings
    if not settings.hook:
        return
    try:
        account = settings.hook_user or pwd.getpwuid(copies.state_dir.stat().st_uid).pw_name
        what = _ended(settings, pwd.getpwnam(account), made)
    except (OSError, KeyError) as error:
        what = f"could not be started: {error}"
    if what:
        failure = f"backup.hook {settings.hook[0]} {what}"
        _note_failure(copies.state_dir, failure)
        raise BackupFailed(failure, hint=f"the copy itself is whole: {made}")


def name_of(kind: str, now_s: float) -> str:
    """The name of a directory that is made now, such as dlq-20261124T120000000Z."""
    return f"{kind}-{re.sub(r'[-:.]', '', format_instant(now_s))}"


def newest_copy(directory: Path) -> Path:
    """The directory itself if it is a copy, else the newest copy in it."""
    if (directory / "dlq.db").exists() or not directory.is_dir():
        return directory
    found = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return found[-1] if found else directory


# --- helpers, in order of use ---------------------------------------------------------------------


def _ended(settings: BackupConfig, account: pwd.struct_passwd, made: Path) -> str:
    """Run the site's program to its end; "" or how it failed. Its processes are killed with it."""
    root = os.geteuid() == 0  # nobody else can become another account
    with tempfile.TemporaryFile() as told:
        program = subprocess.Popen(
            [*settings.hook, str(made)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
            start_new_session=True,
            user=account.pw_uid if root else None,
            group=account.pw_gid if root else None,
            extra_groups=[] if root else None,
        )
        try:
            code = program.wait(float(settings.hook_timeout))
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            return f"took longer than {settings.hook_timeout:g} s and was killed"
        told.seek(0)
        return "" if code == 0 else f"ended with {code}: {_words(told.read())}"


def _copy_master(copies: Copies, now_s: float) -> Path:
    name = name_of("dlq", now_s)
    made, unfinished = copies.target / name, copies.target / f".{name}.incomplete"
    try:
        unfinished.mkdir(mode=0o700, parents=True)
        # The database first: the audit may be ahead of it, and never behind.
        backup(copies.state_dir / "dlq.db", unfinished / "dlq.db")
        _copy_audit(copies, unfinished)
        _copy_authority(copies, unfinished)
        if copies.config_path.exists():
            copy_file(copies.config_path, unfinished / copies.config_path.name)
        unfinished.rename(made)
        sync(copies.target)
        _remove_oldest(copies)
    except (OSError, ValueError, ConfigError) as error:
        where = getattr(error, "filename", None) or made
        raise BackupFailed(f"{where}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


def _copy_audit(copies: Copies, target: Path) -> None:
    """All files of the audit. Closed files never change: they are links to the last copy's, if
    possible.
    """
    newest = copies.state_dir / AUDIT
    before = newest_copy(copies.target)
    while True:
        files = [file for file in segments(newest) if file.exists()]
        for file in reversed(files):
            there, earlier = target / file.name, before / file.name
            if file != newest and earlier.exists() and _same_size(earlier, file):
                there.unlink(missing_ok=True)
                os.link(earlier, there)
            else:
                copy_file(file, there)
        if files == [file for file in segments(newest) if file.exists()]:
            return  # no file was closed meanwhile


def _same_size(one: Path, other: Path) -> bool:
    return one.stat().st_size == other.stat().st_size


def _copy_authority(copies: Copies, target: Path) -> None:
    certificate, key = copies.state_dir / "ca.crt", copies.state_dir / "ca.key"
    if certificate.exists():
        copy_file(certificate, target / certificate.name)
    settings = copies.settings
    beside = (SEEDS, NEXT) if settings.ca_key == "clear" else (SEEDS,)
    for name in beside:
        if (copies.state_dir / name).exists():
            copy_file(copies.state_dir / name, target / name)
    if settings.ca_key == "clear" and key.exists():
        copy_file(key, target / key.name)
    elif settings.ca_key == "encrypted":
        passphrase = read_private(Path(settings.passphrase_file)).strip()
        authority = Authority.load(read_private(key), certificate.read_bytes())
        sealed = target / SEALED_KEY
        sealed.touch(mode=0o600)
        sealed.write_bytes(authority.sealed_key_pem(passphrase))
        sync(sealed)


def copy_file(source: Path, target: Path) -> None:
    """On disk when it returns; the directory around it is closed to others from the first byte
    on.
    """
    shutil.copyfile(source, target)
    target.chmod(0o600)
    sync(target)


def _remove_oldest(copies: Copies) -> None:
    found = sorted(path for path in copies.target.iterdir() if _NAME.fullmatch(path.name))
    for path in found[: -copies.keep] if copies.keep else ():
        shutil.rmtree(path)


def _words(told: bytes) -> str:
    return told.decode("utf-8", "replace").strip()[-LONGEST_WORDS:]


def _note_failure(state_dir: Path, what: str) -> None:
    if state_dir.is_dir():
        _note(state_dir / FAILURE, what)


def _note(path: Path, text: str) -> None:
    """A file that the master reads for its metrics, from any maker of the backup. Where root makes
    it, the directory is another account's: a link there is replaced, and is not written through.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "w") as file:
        file.write(f"{text}\n")
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
