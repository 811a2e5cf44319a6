"""The container that it runs in."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.reading import containers
from dlq_common.job_fields.wire import Plain, Present

TITLE = "Containers"
IMAGE = JobField(
    key="image",
    read=containers.read_image,
    flag="--image IMAGE",
    help="Run it in a container: REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:DIGEST.",
    sample='"registry.lab/team/train:2"',
    comment="Run it in a container, by tag or @sha256:digest.",
    wire=Plain[str]("container.image"),
    label="image",
)
MOUNTS = JobField[object](
    key="mounts",
    read=containers.read_mounts,
    flag="--mount SRC:DST[:ro]",
    help="Show the job a directory or file of the nodes in its container. May be repeated.",
    repeat=True,
    sample='["/shared/data:/data:ro"]',
    comment="Parts of the node that the container sees; with image.",
)
SHM_SIZE = JobField(
    key="resources.shm_size",
    read=containers.read_shm_size,
    flag="--shm-size SIZE",
    help="Size of the container's /dev/shm.  [default: half of its memory]",
    sample='"64GiB"',
    comment="/dev/shm, with image. Default: half its memory.",
    wire=Present[int]("container.shm_size_bytes"),
)
NETWORK = JobField(
    key="network",
    read=containers.read_network,
    flag="--network host|none",
    help="The container's network.  [default: host]",
    sample='"host"',
    comment="Of the container: host or none; with image.",
    wire=Plain[str]("container.network"),
)
IMAGE_SECRET = JobField(
    key="image_secret",
    read=containers.read_secret,
    flag="--image-secret NAME",
    help="Secret of the nodes with the credentials of the image's registry.",
    sample='"registry"',
    comment="The nodes' secret with the registry's credentials; with image.",
    wire=Plain[str]("container.image_secret"),
)
