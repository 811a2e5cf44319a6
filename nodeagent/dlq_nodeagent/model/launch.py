"""All that one rank of one attempt needs, with or without a container, checked at construction."""

import re
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.model.mistakes import LaunchRefused

Network = Literal["host", "none"]

MAX_MOUNTS = 60
SECRETS = "/run/secrets"

# Fields of podman's `-v` are separated by colons, and of its lists by commas.
_PLAIN_PATH = re.compile(r"/[^:,\x00-\x1f\x7f]*\Z")


class Mount(NamedTuple):
    """A directory or file of the host (`source`) at a place in the container (`target`)."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """The container of one rank. Sizes are bytes.

    `mounts` are the user's. Their sources are opened with the user's rights and must lie below one
    of `mount_roots` (any place but the system's own, if there are none). The shim pins them before
    podman sees them. `own_mounts` are the agent's, from directories that only root writes.
    """

    image: str
    """The image's id in podman's store, once it is there, because a name could move on."""
    image_digest: str = ""
    """The digest of its manifest, for people."""
    image_cwd: str = ""
    """The image's own directory, in place of the plan's `cwd`; to start in / instead is no error.
    """
    image_environment: tuple[str, ...] = ()
    """The image's variables, as NAME=VALUE. Lists that we extend begin with our entries and go on
    with these.
    """
    mounts: tuple[Mount, ...] = ()
    mount_roots: tuple[str, ...] = ()
    own_mounts: tuple[Mount, ...] = ()
    shm_bytes: int | None = None
    network: Network = "host"
    devices: tuple[str, ...] = ()
    """Words for podman's --device: names of a CDI specification, or device nodes."""

    def __post_init__(self) -> None:
        if not self.image or self.image.startswith("-"):
            raise LaunchRefused(f"not an image: {self.image!r}")
        if len(self.mounts) > MAX_MOUNTS:
            raise LaunchRefused(f"more than {MAX_MOUNTS} mounts")
        for mount in (*self.mounts, *self.own_mounts):
            for path in (mount.target, mount.source):
                if not _PLAIN_PATH.match(path) or ".." in path.split("/"):
                    raise LaunchRefused(f"a mount's path cannot be passed on: {path!r}")


RunAs = Literal["self", "submitter"]

CHECK = "DLQ_CHECK"  # the kind of check that a job is; the master says it, and no user
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DIGITS = re.compile(r"[0-9]{1,19}\Z", re.ASCII)
_MAX_ID = 2**32 - 2  # 2**32 - 1 means "unchanged" to setresuid(2)
_KIB = 1024
_MIB = 1024 * _KIB


class RankKey(NamedTuple):
    """One rank of one attempt on this node; written `17.2.0` (job, attempt, node rank)."""

    job_id: str
    attempt: int
    node_rank: int

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.node_rank}"

    def numbers(self) -> tuple[int, int, int]:
        """The sort key: by number, not by text."""
        return int(self.job_id), self.attempt, self.node_rank

    @classmethod
    def parse(cls, text: str) -> "RankKey":
        """Parse `17.2.0`. ValueError: anything but three plain decimal integers.

        One number has one spelling (no sign, no leading zero), because the text names directories.
        """
        parts = text.split(".")
        if len(parts) != 3 or not all(_DIGITS.match(part) for part in parts):
            raise LaunchRefused(f"not an attempt key (JOB.ATTEMPT.NODE_RANK): {text!r}")
        key = cls(parts[0], int(parts[1]), int(parts[2]))
        if str(key) != text or str(int(parts[0])) != parts[0]:
            raise LaunchRefused(f"attempt key with leading zeros: {text!r}")
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One rank to start. Durations are seconds; sizes are bytes; ids are numeric.

    `run_as="self"`: the job runs as the agent's own user, and `uid` must be that user.
    `run_as="submitter"`: the agent is root, and the shim drops to `uid`/`gid`/`groups` after
    checking them against the root-owned users map (shim/README.md). uid 0 is never accepted. The
    development flag `allow_root` lets `run_as="self"` run as uid 0. `env` is the job's whole
    environment: nothing of the agent's is passed on.
    """

    job_id: str
    attempt: int
    epoch: int
    node_rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    run_as: RunAs = "self"
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    allow_root: bool = False
    memory_bytes: int | None = None
    pids_max: int = 4096
    cpus: float | None = None
    cores: tuple[int, ...] = ()
    """The only cores that it runs on, by the kernel's numbers; none named: on all."""
    weight: int | None = None
    """Its part of busy cores, beside others on the same ones."""
    hold_s: float = 3600.0
    """Silence of the master that the job survives (L), counted from the last contact."""
    grace_s: float = 300.0
    """Time between notice and kill when the hold runs out."""
    term_s: float = 10.0
    """A second, blunt SIGTERM is sent this long before a kill whose grace runs out."""
    signal: int = int(signals.SIGTERM)
    """The signal that tells this job to save and leave (sent to the main process only)."""
    to_ranks: bool = False
    """Signals go to the ranks that a launcher such as torchrun has started, not to the launcher."""
    log_head_bytes: int = 1 * _MIB
    log_ring_bytes: int = 8 * _MIB
    log_bytes_per_s: int = 64 * _MIB
    """A job that writes faster is slowed down by its own pipe; 0 means no limit."""
    only_devices: tuple[OnlyMinors, ...] = ()
    """The GPU nodes it may open; a container's engine sees to its own."""
    umask: int = 0o022
    soft_limits: Mapping[str, int] = field(default_factory=dict)
    """By the names of dlq_common.text.soft_limits; missing ones are the node's."""
    container: ContainerPlan | None = None
    """Run it in a container, where `argv`, `env` and `cwd` then count; only `podman` can."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))
        object.__setattr__(self, "soft_limits", MappingProxyType(dict(self.soft_limits)))
        RankKey.parse(f"{self.job_id}.{self.attempt}.{self.node_rank}")
        _check_command(self.argv, self.env, self.cwd)
        _check_identity(self)
        _check_numbers(self)

    @property
    def key(self) -> RankKey:
        return RankKey(self.job_id, self.attempt, self.node_rank)


def _refuse_unless(holds: bool, what: str) -> None:
    if not holds:
        raise LaunchRefused(what)


def _check_command(argv: tuple[str, ...], env: Mapping[str, str], cwd: str) -> None:
    _refuse_unless(len(argv) > 0 and argv[0] != "", "argv is empty")
    _refuse_unless(cwd.startswith("/"), f"cwd is not absolute: {cwd!r}")
    for name in env:
        _refuse_unless(name != "" and "=" not in name, f"bad environment name: {name!r}")
    for text in (*argv, *env, *env.values(), cwd):
        _refuse_unless("\0" not in text, "NUL in argv, env or cwd")


def _check_identity(plan: LaunchPlan) -> None:
    for number in (plan.uid, plan.gid, *plan.groups):
        _refuse_unless(0 <= number <= _MAX_ID, f"not a uid or gid: {number}")
    if plan.run_as == "submitter":
        _refuse_unless(plan.uid != 0, "a submitter's job never runs as uid 0")
    elif plan.uid == 0:
        _refuse_unless(plan.allow_root, "uid 0 needs the development flag allow_root")


def _check_numbers(plan: LaunchPlan) -> None:
    _refuse_unless(plan.epoch >= 0, f"epoch: {plan.epoch}")
    _refuse_unless(plan.hold_s > 0, f"hold_s: {plan.hold_s}")
    _refuse_unless(plan.grace_s >= 0 and plan.term_s >= 0, "grace_s and term_s are not negative")
    _refuse_unless(0 <= plan.umask <= 0o777, f"umask: {plan.umask:o}")
    _refuse_unless(1 <= plan.signal <= 64, f"signal: {plan.signal}")
    _refuse_unless(plan.pids_max >= 1, f"pids_max: {plan.pids_max}")
    _refuse_unless(plan.memory_bytes is None or plan.memory_bytes > 0, "memory_bytes")
    _refuse_unless(plan.cpus is None or plan.cpus > 0, "cpus")
    _refuse_unless(plan.log_head_bytes >= 0, "log_head_bytes")
    _refuse_unless(plan.log_ring_bytes >= 4096, "log_ring_bytes is at least 4096")
    _refuse_unless(plan.log_bytes_per_s >= 0, "log_bytes_per_s")
