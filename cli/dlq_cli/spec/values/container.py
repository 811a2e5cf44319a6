"""The container of a job: what makes sense only with an image is refused without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_common.job_fields.reading.containers import MountSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """None where the cluster decides."""

    image: str
    mounts: tuple[MountSpec, ...]
    shm_size_bytes: int | None
    network: str | None
    image_secret: str | None
    secrets: tuple[str, ...]


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


def _below(merged: ReadLayer, prefix: str, kind: type[T]) -> list[T]:
    found = (given.value for key, given in merged.items() if key.startswith(prefix))
    return [value for value in found if isinstance(value, kind)]


def _value(merged: ReadLayer, key: str, kind: type[T]) -> T | None:
    given = merged.get(key)
    return given.value if given is not None and isinstance(given.value, kind) else None
