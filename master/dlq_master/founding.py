"""Making a new cluster: its CA, an empty database, a first admin and master.toml."""

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from dlq_common.errors import ConfigError
from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.pki import Authority
from dlq_master.store.batch import Batch, User
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite.open import create_database, open_database, write
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put


@dataclass(frozen=True, slots=True, kw_only=True)
class Charter:
    """The decisions that are made once, when a cluster is founded. Paths are absolute.

    `owner` is the account the master will run as; "" is whoever makes the cluster. The first admin
    is always the latter.
    """

    cluster: str
    state_dir: Path
    config_path: Path
    checkpoint_root: Path
    listen: str
    join_listen: str
    advertise: str = ""
    login_socket: Path | None = None
    owner: str = ""


def found(charter: Charter, now_s: float) -> User:
    """Make the cluster; return its first admin, the user that runs this.

    Raises ConfigError when there is one already or the caller has no account, OSError, or
    ValueError for a bad name. A founding that was cut short has no ca.key: it can be begun again in
    an empty directory.
    """
    state_dir, config_path = charter.state_dir, charter.config_path
    if (state_dir / "ca.key").exists() or config_path.exists():
        raise ConfigError(f"there is a cluster in {state_dir} already, or {config_path} exists")
    check_owner(charter.owner)
    admin = _invoker(now_s)
    state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    _make_checkpoint_root(charter.checkpoint_root)
    authority = Authority.create(charter.cluster, now_s)
    _first_database(state_dir / "dlq.db", charter.cluster, admin)
    write_public(state_dir / "ca.crt", authority.certificate_pem())
    write_public(config_path, _first_config(charter).encode())
    # Last: with the key in place the cluster is complete.
    write_private(state_dir / "ca.key", authority.key_pem())
    if charter.owner:
        give_to(state_dir, charter.owner)
    return admin


def check_owner(owner: str) -> None:
    """ConfigError unless there is such an account on this host; "": the present one."""
    if not owner:
        return
    try:
        pwd.getpwnam(owner)
    except KeyError:
        raise ConfigError(f"owner: there is no account {owner!r} on this host") from None


def give_to(state_dir: Path, owner: str) -> None:
    """The directory and the files in it; deeper levels (checkpoints of others) are not touched."""
    group = pwd.getpwnam(owner).pw_gid
    for path in (state_dir, *(path for path in state_dir.iterdir() if path.is_file())):
        shutil.chown(path, owner, group)


def _first_database(path: Path, cluster: str, admin: User) -> None:
    create_database(path)
    path.chmod(0o600)
    db = open_database(path)
    with write(db):
        write_batch(db, Batch(changes=put(USERS, [admin]), meta={"cluster": cluster, "epoch": "0"}))
    db.close()


def _make_checkpoint_root(path: Path) -> None:
    """Root's is for everybody, as /tmp is: submitters make their own directories in it.

    One that is there already stays as it is.
    """
    if path.exists():
        return
    path.mkdir(parents=True)
    path.chmod(0o1777 if os.geteuid() == 0 else 0o700)


def caller_name() -> str:
    """The account that runs this, for records; `uid 4711` where this host has no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _invoker(now_s: float) -> User:
    """The account that founds the cluster, as its first admin. ConfigError for a uid without
    one.
    """
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        raise ConfigError(
            f"uid {os.getuid()} has no account on this host, and a cluster needs a first admin",
            hint="make the account (useradd), or call `dlq-master init` from another one",
        ) from None
    groups = tuple(sorted(set(os.getgrouplist(account.pw_name, account.pw_gid))))
    return User(account.pw_name, "admin", account.pw_uid, account.pw_gid, groups, now_s)


def _first_config(charter: Charter) -> str:
    more = f'advertise = "{charter.advertise}"\n' if charter.advertise else ""
    more += f'login_socket = "{charter.login_socket}"\n' if charter.login_socket else ""
    return (
        "# Every key and its default: dlq-master run --check-config\n"
        f'[cluster]\nname = "{charter.cluster}"\nstate_dir = "{charter.state_dir}"\n\n'
        f'[listen]\napi = "{charter.listen}"\njoin = "{charter.join_listen}"\n{more}\n'
        f'[jobs]\ncheckpoint_root = "{charter.checkpoint_root}"\n'
    )
