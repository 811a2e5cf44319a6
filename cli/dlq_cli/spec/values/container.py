"""The container of a job as users write it: image, mounts, shared memory, network, secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_cli.spec.values.readers import read_memory, read_text
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

T = TypeVar("T")


class MountSpec(NamedTuple):
    """A path of the nodes at a place in the container."""

    source: str
    target: str
    read_only: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """None where the cluster decides."""

    image: str
    mounts: tuple[MountSpec, ...]
    shm_size_bytes: int | None
    network: str | None
    image_secret: str | None
    secrets: tuple[str, ...]


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


def container_of(merged: ReadLayer) -> ImageSpec | None:
    """The container, if an image is given; what makes sense only with one is refused without."""
    image = _value(merged, "image", str)
    mounts = tuple(_below(merged, "mounts.", MountSpec))
    secrets = tuple(_below(merged, "secrets.", str))
    if image is None:
        for key, given in merged.items():
            if key in _ONLY_WITH_IMAGE or key.startswith(("mounts.", "secrets.")):
                word = key.partition(".")[0] if key.startswith(("mounts.", "secrets.")) else key
                raise wrong(given.origin, f"{word} needs an image: there is no container without")
        return None
    return ImageSpec(
        image=image,
        mounts=mounts,
        shm_size_bytes=_value(merged, "resources.shm_size", int),
        network=_value(merged, "network", str),
        image_secret=_value(merged, "image_secret", str),
        secrets=secrets,
    )


def entries(key: str, value: tuple[object, ...]) -> Mapping[str, object]:
    """Keys of a layer for each mount (by its target) and secret (by its name): a higher layer adds
    to a lower one's, and replaces what has the same place."""
    return {f"{key}.{item.target if isinstance(item, MountSpec) else item}": item for item in value}


_ONLY_WITH_IMAGE = ("resources.shm_size", "network", "image_secret")


def _mount(text: str) -> MountSpec:
    source, _, rest = text.partition(":")
    target, _, option = rest.partition(":")
    if not source or not target or option not in ("", "ro", "rw"):
        raise ValueError(f"{shown(text)} is not a mount: write SRC:DST or SRC:DST:ro")
    check_mount_source(source)
    return MountSpec(source, check_mount_target(target), option == "ro")


def _below(merged: ReadLayer, prefix: str, kind: type[T]) -> list[T]:
    found = (given.value for key, given in merged.items() if key.startswith(prefix))
    return [value for value in found if isinstance(value, kind)]


def _value(merged: ReadLayer, key: str, kind: type[T]) -> T | None:
    given = merged.get(key)
    return given.value if given is not None and isinstance(given.value, kind) else None
