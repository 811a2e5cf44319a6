"""A job's container, from flags and files to the message; and what is refused with its place."""

import pytest

from dlq_cli.spec.fields import BY_NAME, layer_from
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import to_message
from dlq_cli.spec.toml_yaml import read_spec_file
from dlq_cli.spec.understood import understood
from dlq_cli.spec.validate import Spec, finish
from dlq_common.errors import InvalidRequest

IMAGE = "docker.io/pytorch/pytorch:2.13"
FILE = b"""
command = "python train.py"
image = "docker.io/pytorch/pytorch:2.13"
mounts = ["/data/imagenet:/data:ro", "/home/alice/run:/run/me"]
network = "none"
image_secret = "registry"
secrets = ["wandb"]
[resources]
shm_size = "64GiB"
"""


def spec(*pairs: tuple[str, str], file: bytes = b'command = "true"\n') -> Spec:
    flags = layer_from((BY_NAME[name], value, name) for name, value in pairs)
    merged = merge([read_spec_file(file, "job.toml"), flags], {})
    return finish(merged, directory="/home/alice")


def refusal(*pairs: tuple[str, str], file: bytes = b'command = "true"\n') -> str:
    with pytest.raises(InvalidRequest) as caught:
        spec(*pairs, file=file)
    return caught.value.what


def test_a_container_from_a_file_travels_whole() -> None:
    message = to_message(spec(file=FILE))
    container = message.container
    assert container.image == IMAGE
    assert [(m.source, m.target, m.read_only) for m in container.mounts] == [
        ("/data/imagenet", "/data", True),
        ("/home/alice/run", "/run/me", False),
    ]
    assert (container.shm_size_bytes, container.network) == (64 << 30, "none")
    assert (container.image_secret, list(container.secrets)) == ("registry", ["wandb"])


def test_flags_add_mounts_to_the_files_and_replace_those_at_the_same_place() -> None:
    made = spec(("--mount", "/scratch:/data"), ("--mount", "/a:/b"), file=FILE)
    assert {str(mount) for mount in made.mounts} == {
        *("/scratch:/data", "/home/alice/run:/run/me", "/a:/b")
    }


def test_without_a_container_nothing_of_one_travels() -> None:
    made = spec()
    assert made.mounts == ()
    assert not to_message(made).HasField("container")
    assert made.values.get("workdir") == "/home/alice"


def test_the_submitters_directory_means_nothing_in_an_image_unless_it_is_named() -> None:
    assert spec(("--image", IMAGE)).values.get("workdir") == ""
    assert spec(("--image", IMAGE), ("-D", "/data")).values.get("workdir") == "/data"


def test_what_was_understood_names_image_and_mounts() -> None:
    text = understood(spec(("--image", IMAGE), ("--mount", "/a:/b:ro")))
    assert f"{IMAGE}  (--image)" in text
    assert "/a:/b:ro" in text
    assert "the image's" in text


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--image", "pytorch", "--image: 'pytorch' names no registry"),
        ("--image", "docker.io/x/y", "names no version"),
        ("--image", "dir:/etc", "is not an image"),
        ("--image", "oci-archive:/root/x:1", "is not an image"),
        ("--image", "--privileged", "is not an image"),
        ("--image", "docker.io/../x:1", "is not an image"),
        ("--image", "docker.io/x:1@sha256:12", "is not an image"),
        ("--mount", "/a", "write SRC:DST"),
        ("--mount", "a:/b", "write an absolute path"),
        ("--mount", "/a/../etc:/b", "'/a/../etc'"),
        ("--mount", "/a:/", "cannot take the place of the whole image"),
        ("--mount", "/a:/proc/1", "/proc is taken"),
        ("--mount", "/a:/b:rw,suid", "write SRC:DST"),
        ("--mount", "/a,x:/b", "colon or a comma"),
        ("--network", "bridge", "'bridge' is not a network"),
        ("--secret", "../x", "secret name '../x' is not allowed"),
        ("--shm-size", "1k", "1 MiB at least"),
    ],
)
def test_a_mistake_in_a_container_is_told_with_its_flag(flag: str, value: str, said: str) -> None:
    what = refusal((flag, value))
    assert what.startswith(f"{flag}: ")
    assert said in what


@pytest.mark.parametrize(
    "pair", [("--mount", "/a:/b"), ("--secret", "x"), ("--network", "none"), ("--shm-size", "1G")]
)
def test_what_only_a_container_has_needs_an_image(pair: tuple[str, str]) -> None:
    assert "needs an image" in refusal(pair)
