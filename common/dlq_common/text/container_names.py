"""Rules for the images, mounts and secrets that a job may name, as pure functions.

Each returns its argument or raises ValueError with one line. A container engine cannot take a
checked name for an option, a transport (`dir:/etc`) or another field.
"""

from __future__ import annotations

import re

from dlq_common.text.names import check_absolute_path, shown

NETWORKS = ("host", "none")
LONGEST_IMAGE = 512
MOST_MOUNTS = 60
MOST_SECRETS = 32
LEAST_SHM_BYTES = 1 << 20

_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST = r"(?:localhost|[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+)"
_IMAGE = re.compile(
    rf"(?:(?P<registry>{_HOST}(?::[0-9]{{1,5}})?|[a-z0-9-]+:[0-9]{{1,5}}(?=/))/)?"
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
# Paths that the engine, the kernel or dlq itself puts into a container.
_TAKEN = ("/proc", "/sys", "/dev", "/run/secrets", "/run/podman-init", "/etc/passwd", "/etc/group")


def check_image(name: str) -> str:
    """An image with its registry, a tag or a digest: `docker.io/pytorch/pytorch:2.13`."""
    found = _IMAGE.fullmatch(name) if len(name) <= LONGEST_IMAGE else None
    if not found:
        raise ValueError(
            f"{shown(name)} is not an image: write REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:DIGEST"
        )
    if not found["registry"]:
        raise ValueError(f"{shown(name)} names no registry: write it too, as in docker.io/{name}")
    if not found["tag"] and not found["digest"]:
        raise ValueError(f"{shown(name)} names no version: add a tag (:1.0) or a digest")
    return name


def registry_of(image: str) -> str:
    """The registry of a name that `check_image` has passed."""
    return image.partition("/")[0]


def repository_of(image: str) -> str:
    """The same without its tag and digest."""
    name = image.partition("@")[0]
    path, colon, tag = name.rpartition(":")
    return path if colon and "/" not in tag else name


def check_mount_source(path: str) -> str:
    """A path of the nodes that can be mounted."""
    return _check_mount(path, "mount source")


def check_mount_target(path: str) -> str:
    """A place in the container that the job may choose."""
    _check_mount(path, "mount target")
    if path.rstrip("/") == "":
        raise ValueError("a mount cannot take the place of the whole image")
    for taken in _TAKEN:
        if path == taken or path.startswith(f"{taken}/"):
            raise ValueError(f"mount target {shown(path)} is not allowed: {taken} is taken")
    return path


def check_secret(name: str) -> str:
    """The name of a secret: a file name, and nothing that leads elsewhere."""
    if not _SECRET.fullmatch(name) or ".." in name:
        raise ValueError(
            f"secret name {shown(name)} is not allowed: use letters, digits, _ . and -"
        )
    return name


def _check_mount(path: str, what: str) -> str:
    check_absolute_path(path, what)
    if ":" in path or "," in path:
        raise ValueError(f"{what} {shown(path)} is not allowed: it holds a colon or a comma")
    return path
