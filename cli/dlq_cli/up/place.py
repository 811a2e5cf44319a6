"""The place of a box: its record beside the identity, its state directory, and the checks of both.

A box is the part of a cluster that `dlq up` runs on this machine for one user. Its record `up.json`
lies in the identity directory, so `dlq --home DIR up` is another box.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dlq_cli.settings import DEFAULT, FILE, ClientSettings
from dlq_client.line.identity import (
    CERTIFICATE_FILE,
    HOME_VARIABLE,
    default_home,
    load_identity,
)
from dlq_common.errors import ConfigError
from dlq_common.identity.files import write_private
from dlq_common.text.units import format_size

RECORD = "up.json"
VERSION = 1
LONGEST_SOCKET_BYTES = 107  # the kernel's limit for the path of a socket, without its end
FEWEST_FREE_BYTES = 2 * 1024**3  # an agent takes nothing new with less than 1 GiB
# Locks and memory maps of SQLite and of the agent do not hold on these.
_REMOTE = re.compile(
    r"(nfs4?|cifs|smb3|smbfs|lustre|gpfs|beegfs|ceph|afs|ocfs2|gfs2|orangefs|panfs|wekafs"
    r"|fuse\.(sshfs|glusterfs|ceph|s3fs|rclone|juicefs))\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """All that is decided when a box is made."""

    home: Path  # the identity directory
    name: str  # "up", or "up-lab" for another identity directory
    state: Path
    machine: str  # the host's name: a home directory may be that of several hosts
    node: str  # the name of this machine in the cluster
    cluster: str
    devices: str
    joined: bool = False  # the master is on another machine
    api: str = ""  # where the master listens; "" on a joined box
    join: str = ""
    address: str = ""  # of this machine for others, once it is open to them
    cores: int | None = None  # for jobs without GPUs; None: as the agent divides them

    @property
    def master(self) -> Path:
        """The master's state directory."""
        return self.state / "master"

    @property
    def agent(self) -> Path:
        """The agent's state directory."""
        return self.state / "agent"

    @property
    def login_socket(self) -> Path:
        return self.master / "login.sock"

    @property
    def checkpoints(self) -> Path:
        return self.state / "checkpoints"

    @property
    def lock(self) -> Path:
        """Held by the keeper of this box as long as it lives."""
        return self.state / "keeper.lock"

    @property
    def running(self) -> Path:
        """The processes of this box, as its keeper wrote them down."""
        return self.state / "running.json"

    def log(self, part: str) -> Path:
        return self.state / "logs" / f"{part}.log"

    @property
    def mark(self) -> str:
        """The same for equal records only."""
        return hashlib.sha256(self._text().encode()).hexdigest()[:16]

    @property
    def is_founded(self) -> bool:
        """Whether its master has a whole cluster: the CA's key is made last."""
        return (self.master / "ca.key").exists()

    @property
    def has_node(self) -> bool:
        """Whether its agent has joined a cluster."""
        return (self.agent / CERTIFICATE_FILE).exists()

    def save(self) -> None:
        """Write the record. ConfigError when that is not possible."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self.home / RECORD, self._text().encode())
        except OSError as error:
            raise ConfigError(f"{self.home / RECORD}: {error.strerror}") from None

    def _text(self) -> str:
        told = {name: value for name, value in asdict(self).items() if value is not None}
        facts = {name: _plain(value) for name, value in told.items() if name != "home"}
        return json.dumps({"v": VERSION, **facts}, indent=2) + "\n"


def read_box(home: Path) -> Box | None:
    """The box of this identity directory; None without one. ConfigError for a damaged record, or
    one of another machine.
    """
    path = home / RECORD
    try:
        facts = json.loads(path.read_bytes())
        known = {name: facts[name] for name in facts if name != "v"}
        box = Box(home=home, **{**known, "state": Path(known["state"])})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{path} is damaged", hint=f"mend it, or remove {path}") from None
    if box.machine != platform.node():
        raise ConfigError(
            f"{path} is of the machine {box.machine}, and this is {platform.node()}",
            hint=f"`dlq --home {home}-{platform.node()} up` makes a box of this machine beside it",
        )
    return box


def name_for(home: Path, environ: Mapping[str, str]) -> str:
    """The name of the box of this identity directory."""
    plain = {name: value for name, value in environ.items() if name != HOME_VARIABLE}
    return "up" if home == default_home(plain) else f"up-{_word(home.name)}"


def state_for(name: str, environ: Mapping[str, str]) -> Path:
    """The usual state directory of a box: below $XDG_STATE_HOME, else ~/.local/state."""
    told = environ.get("XDG_STATE_HOME")
    base = Path(told) if told else Path("~/.local/state").expanduser()
    return base / "dlq" / name


def refuse_other_cluster(home: Path, settings: ClientSettings, now_cluster: str = "") -> None:
    """ConfigError when the identity or the settings in `home` are of another cluster."""
    identity = load_identity(home)
    beside = f"`dlq --home {home}-up up` makes a box beside it; then export DLQ_HOME={home}-up"
    if identity is not None and identity.cluster != now_cluster:
        raise ConfigError(
            f"{home} is for the cluster {identity.cluster} at {identity.address}, and stays so",
            hint=beside,
        )
    if now_cluster:
        return
    named = settings.get("login_socket")
    if named.origin != DEFAULT and not named.origin.startswith("$"):
        raise ConfigError(
            f"{home / FILE} names the cluster of {named.value}, and stays so", hint=beside
        )


def check_state(state: Path, mounts: str) -> None:
    """Refuse a state directory that cannot do. `mounts` as /proc/self/mounts has them."""
    kind = _file_system(state, mounts)
    if _REMOTE.match(kind):
        raise ConfigError(
            f"{state} is on a network file system ({kind}), where a database may be damaged",
            hint=f"name a local directory: dlq up --dir /var/tmp/dlq-{os.getuid()}",
        )
    socket = os.fsencode(state / "master" / "login.sock")
    if len(socket) > LONGEST_SOCKET_BYTES:
        raise ConfigError(
            f"{state} is too long: its socket would have {len(socket)} bytes, and the kernel "
            f"takes {LONGEST_SOCKET_BYTES}",
            hint=f"name a shorter one: dlq up --dir /var/tmp/dlq-{os.getuid()}",
        )
    free = shutil.disk_usage(_existing(state)).free
    if free < FEWEST_FREE_BYTES:
        raise ConfigError(
            f"{state} has {format_size(free)} of free space, and "
            f"{format_size(FEWEST_FREE_BYTES)} are needed",
            hint="make room, or name another directory with --dir",
        )


def make_state(state: Path, home: Path) -> None:
    """The state directory, for this user alone: the login socket in it gives their rights away.

    ConfigError when it belongs to another user, or to the box of another identity directory.
    """
    owner = state / "home"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, ours = state.stat(), os.geteuid()
        # A link of another user's leads to a directory of ours now, and elsewhere later.
        if found.st_uid != ours or state.lstat().st_uid not in (ours, 0):
            raise ConfigError(f"{state} belongs to another user", hint="--dir names another one")
        for path in (state / "logs", state / "checkpoints"):
            path.mkdir(mode=0o700, exist_ok=True)
        if found.st_mode & 0o077:
            state.chmod(0o700)
        if not owner.exists():
            owner.write_text(f"{home}\n")
        told = owner.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"{error.filename or state}: {error.strerror}", hint="--dir names another directory"
        ) from None
    if told != str(home):
        raise ConfigError(f"{state} has the box of {told}", hint="--dir names another directory")


def host_word() -> str:
    """This host's name as a word that a cluster or a node may have."""
    return _word(platform.node().partition(".")[0])


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:40] or "box"


def _file_system(path: Path, mounts: str) -> str:
    """The kind of file system on which a path lies."""
    real, best, kind = _existing(path).resolve(), -1, ""
    for line in mounts.splitlines():
        words = line.split(" ")
        at = words[1].replace("\\040", " ")
        if len(at) >= best and (real == Path(at) or Path(at) in real.parents):
            best, kind = len(at), words[2]
    return kind


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
