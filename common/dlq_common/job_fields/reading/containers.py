"""How the parts of a container are read: image, mounts, shared memory, network, secrets."""

from __future__ import annotations

from typing import NamedTuple

from dlq_common.job_fields.reading.words import read_memory, read_text
from dlq_common.text.container_names import (
    LEAST_SHM_BYTES,
    NETWORKS,
    check_image,
    check_mount_source,
    check_mount_target,
    check_secret,
)
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean


class MountSpec(NamedTuple):
    """A path of the nodes at a place in the container."""

    source: str
    target: str
    read_only: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


def read_image(raw: object) -> str:
    """An image with its registry and a tag or digest."""
    return check_image(read_text(raw).removeprefix("docker://"))


def read_mounts(raw: object) -> tuple[MountSpec, ...]:
    """`SRC:DST[:ro]`, or a list of such."""
    return tuple(_mount(read_text(item)) for item in (raw if isinstance(raw, list) else [raw]))


def read_shm_size(raw: object) -> int:
    """Bytes of a size with a unit."""
    size = read_memory(raw)
    if size < LEAST_SHM_BYTES:
        raise ValueError(f"{size} bytes are too few: 1 MiB at least")
    return size


def read_network(raw: object) -> str:
    """`host` or `none`."""
    word = read_text(raw)
    if word not in NETWORKS:
        known = f"{' or '.join(NETWORKS)}{did_you_mean(word, NETWORKS)}"
        raise ValueError(f"{shown(word)} is not a network: write {known}")
    return word


def read_secret(raw: object) -> str:
    """The name of a secret that the nodes keep."""
    return check_secret(read_text(raw))


def read_secrets(raw: object) -> tuple[str, ...]:
    """A name, or a list of names."""
    return tuple(read_secret(item) for item in (raw if isinstance(raw, list) else [raw]))


def _mount(text: str) -> MountSpec:
    source, _, rest = text.partition(":")
    target, _, option = rest.partition(":")
    if not source or not target or option not in ("", "ro", "rw"):
        raise ValueError(f"{shown(text)} is not a mount: write SRC:DST or SRC:DST:ro")
    check_mount_source(source)
    return MountSpec(source, check_mount_target(target), option == "ro")
