"""The container of a job: settings that need an image are refused without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_common.job_fields.reading.containers import MountSpec

T = TypeVar("T")


def check_container(merged: ReadLayer) -> None:
    """InvalidRequest for settings that need an image, where none is given."""
    if "image" in merged:
        return
    for key, given in merged.items():
        word = key.partition(".")[0] if key.startswith(("mounts.", "secrets.")) else key
        if word in _ONLY_WITH_IMAGE:
            raise wrong(given.origin, f"{word} needs an image: there is no container without")


def entries_of(merged: ReadLayer, key: str, kind: type[T]) -> tuple[T, ...]:
    """All mounts, or all secrets."""
    found = (given.value for each, given in merged.items() if each.startswith(f"{key}."))
    return tuple(value for value in found if isinstance(value, kind))


def entries(key: str, value: tuple[object, ...]) -> Mapping[str, object]:
    """Keys of a layer for each mount (by its target) and secret (by its name). A higher layer adds
    to a lower one, and replaces entries with the same place.
    """
    return {f"{key}.{item.target if isinstance(item, MountSpec) else item}": item for item in value}


_ONLY_WITH_IMAGE = ("mounts", "secrets", "resources.shm_size", "network", "image_secret")
