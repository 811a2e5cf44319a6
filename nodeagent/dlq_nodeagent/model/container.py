"""What a rank in a container needs beyond a plain one, as a value."""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

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

    `mounts` are the user's: their sources are opened with the user's rights, must lie below one of
    `mount_roots` (any place but the system's own, if there are none), and are pinned by the shim
    before podman sees them. `own_mounts` are the agent's, from directories that only root writes.
    """

    image: str
    """What podman's store calls it, once it is there: an id, never a name that could move on."""
    image_digest: str = ""
    """Of its manifest, for people."""
    image_cwd: str = ""
    """The image's own directory, in place of the plan's `cwd`; to start in / instead is no error.
    """
    image_environment: tuple[str, ...] = ()
    """What the image sets, as NAME=VALUE: lists that we add to begin with ours and go on with
    these.
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
