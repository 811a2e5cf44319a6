"""The needs of a rank in a container beyond a plain one, as a value."""

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
