"""The container of a JobSpec: every field is checked.

The nodes check that its image, directories and secrets exist. Values of secrets are never sent
here.
"""

from __future__ import annotations

from dlq.v1.job_pb2 import ContainerSpec, JobSpec
from dlq_common.job_fields.limits import Passes, refused
from dlq_common.text.container_names import (
    LEAST_SHM_BYTES,
    MOST_MOUNTS,
    MOST_SECRETS,
    NETWORKS,
    check_image,
    check_mount_source,
    check_mount_target,
    check_secret,
)
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean

RUNTIME = "podman"


def check_container(spec: JobSpec) -> None:
    """InvalidRequest names the field that makes no sense."""
    if not spec.HasField("container"):
        if spec.runtime == RUNTIME:
            raise refused("container", "is missing: the podman runtime needs an image")
        return
    if spec.runtime not in ("", RUNTIME):
        raise refused("runtime", f"{shown(spec.runtime)} runs no containers: leave it empty")
    container = spec.container
    if not container.image:
        raise refused("container.image", "is empty: mounts, secrets and a network need an image")
    Passes(check_image).check("container.image", container.image)
    _check_mounts(container)
    _check_secrets(container)
    if container.HasField("shm_size_bytes") and container.shm_size_bytes < LEAST_SHM_BYTES:
        raise refused("container.shm_size_bytes", "must be at least 1 MiB")
    _check_network(spec)


def _check_mounts(container: ContainerSpec) -> None:
    if len(container.mounts) > MOST_MOUNTS:
        raise refused("container.mounts", f"are more than {MOST_MOUNTS}")
    targets = set()
    for mount in container.mounts:
        Passes(check_mount_source).check("container.mounts", mount.source)
        Passes(check_mount_target).check("container.mounts", mount.target)
        if mount.target.rstrip("/") in targets:
            raise refused("container.mounts", f"has two mounts at {shown(mount.target)}")
        targets.add(mount.target.rstrip("/"))


def _check_secrets(container: ContainerSpec) -> None:
    if len(container.secrets) > MOST_SECRETS:
        raise refused("container.secrets", f"are more than {MOST_SECRETS}")
    if len(set(container.secrets)) < len(container.secrets):
        raise refused("container.secrets", "names a secret twice")
    for name in container.secrets:
        Passes(check_secret).check("container.secrets", name)
    if container.image_secret:
        Passes(check_secret).check("container.image_secret", container.image_secret)


def _check_network(spec: JobSpec) -> None:
    network = spec.container.network or NETWORKS[0]
    if network not in NETWORKS:
        choices = f"{' or '.join(NETWORKS)}{did_you_mean(network, NETWORKS)}"
        raise refused("container.network", f"{shown(network)} is not {choices}")
    if network == "none" and _may_be_gang(spec):
        raise refused(
            "container.network", "none keeps the nodes of a gang from reaching each other"
        )


def _may_be_gang(spec: JobSpec) -> bool:
    """Whether the job asks for several nodes, or may grow to them."""
    nodes = spec.resources.node_count
    largest = max(spec.elastic.gpu_counts, default=0)
    return nodes > 1 or (nodes == 1 and largest > spec.resources.gpu_count)
