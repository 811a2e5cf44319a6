"""The container of a submitted job: what the master takes, fills in and refuses by field."""

import pytest

from dlq.v1.job_pb2 import ContainerSpec, JobSpec, Mount
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_common.text.container_names import check_image, registry_of
from dlq_master.rpc.specs.spec import checked

IMAGE = "registry.example:5000/team/train:1"


def a_spec(**container: object) -> JobSpec:
    return JobSpec(
        command=["train"],
        resources=ResourceRequest(gpu_count=2),
        container=ContainerSpec(**({"image": IMAGE} | container)),  # type: ignore[arg-type]
    )


def test_a_container_sets_runtime_and_network_and_keeps_the_images_directory() -> None:
    filled = checked(a_spec())
    assert (filled.runtime, filled.container.network) == ("podman", "host")
    assert filled.working_directory == ""


def test_without_a_container_nothing_changes() -> None:
    spec = JobSpec(command=["train"], resources=ResourceRequest(gpu_count=1))
    filled = checked(spec)
    assert (filled.runtime, filled.working_directory) == ("process", "/")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"image": ""}, "spec.container.image"),
        ({"image": "dir:/etc"}, "spec.container.image"),
        ({"mounts": [Mount(source="etc", target="/x")]}, "spec.container.mounts"),
        ({"mounts": [Mount(source="/e", target="/sys/x")]}, "spec.container.mounts"),
        (
            {"mounts": [Mount(source="/a", target="/x"), Mount(source="/b", target="/x/")]},
            "spec.container.mounts",
        ),
        (
            {"mounts": [Mount(source="/a", target=f"/{n}") for n in range(61)]},
            "spec.container.mounts",
        ),
        ({"network": "bridge"}, "spec.container.network"),
        ({"shm_size_bytes": 0}, "spec.container.shm_size_bytes"),
        ({"secrets": ["a", "a"]}, "spec.container.secrets"),
        ({"secrets": ["../a"]}, "spec.container.secrets"),
        ({"image_secret": "a/b"}, "spec.container.image_secret"),
    ],
)
def test_a_container_that_makes_no_sense_is_refused_by_field(
    fields: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked(a_spec(**fields))
    assert caught.value.field == field


def test_a_gang_without_a_network_is_refused() -> None:
    spec = a_spec(network="none")
    spec.resources.node_count = 2
    with pytest.raises(InvalidRequest, match="reaching each other"):
        checked(spec)


def test_a_job_that_may_grow_to_a_gang_needs_a_network_too() -> None:
    spec = a_spec(network="none")
    gpus = spec.resources.gpu_count
    spec.resources.node_count = 1
    checked(spec)
    spec.elastic.gpu_counts.extend([gpus, 2 * gpus])
    with pytest.raises(InvalidRequest, match="reaching each other"):
        checked(spec)


@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_another_runtime_runs_no_containers(runtime: str) -> None:
    spec = a_spec()
    spec.runtime = runtime
    with pytest.raises(InvalidRequest, match="runs no containers"):
        checked(spec)


def test_podman_without_an_image_is_refused() -> None:
    spec = JobSpec(command=["x"], resources=ResourceRequest(gpu_count=1), runtime="podman")
    with pytest.raises(InvalidRequest, match="needs an image"):
        checked(spec)


@pytest.mark.parametrize(
    "name",
    [
        "docker.io/library/busybox:1",
        "localhost/x:1",
        "localhost:5000/a/b_c/d--e:v1.2",
        "nvcr.io/nvidia/pytorch:25.09-py3",
        "ghcr.io/o/i@sha256:" + "a" * 64,
        "r.io/o/i:t@sha256:" + "0" * 64,
    ],
)
def test_images_as_people_write_them_are_taken(name: str) -> None:
    assert check_image(name) == name
    assert registry_of(name) == name.split("/")[0]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "busybox:1",
            "library/busybox:1",
            "docker.io/x",
            "Docker.io/x:1",
            "-v:1",
            "docker.io/X:1",
        ),
        *("docker://docker.io/x:1", "containers-storage:docker.io/x:1", "dir:/etc", "oci:/x:1"),
        *("docker.io//x:1", "docker.io/../x:1", "docker.io/x:1 --privileged", "docker.io/x:1\n"),
        *("docker.io/x@sha256:abc", "docker.io/x@md5:" + "a" * 64, "docker.io/" + "x" * 600 + ":1"),
    ],
)
def test_what_is_no_image_or_could_be_another_thing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"image|registry|version"):
        check_image(name)
