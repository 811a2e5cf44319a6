"""Images whose own files stand in the way of what every container gets."""

from pathlib import Path

import pytest

from dlq_nodeagent.runtimes.podman.images import unfit


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("run", "tmp", "var/tmp", "proc", "sys", "dev", "etc"):
        (tmp_path / "image" / name).mkdir(parents=True)
    return tmp_path / "image"


def link(root: Path, path: str, target: str) -> None:
    (root / path).rmdir()
    (root / path).symlink_to(target)


def test_an_ordinary_image_and_one_without_any_files_are_fit(root: Path, tmp_path: Path) -> None:
    assert unfit(root) == ""
    (tmp_path / "empty").mkdir()
    assert unfit(tmp_path / "empty") == ""


@pytest.mark.parametrize(
    ("path", "target"),
    [
        *(("tmp", "/var/tmp"), ("var/tmp", "/tmp"), ("run", "var/run"), ("tmp", "scratch")),
        *(("run", "../../../../data"), ("tmp", "/etc")),
    ],
)
def test_a_link_to_another_place_of_the_image_does_no_harm(
    root: Path, path: str, target: str
) -> None:
    link(root, path, target)
    assert unfit(root) == ""


@pytest.mark.parametrize(
    ("path", "target", "words"),
    [
        ("run", "/proc", "its /run is a link to /proc"),
        ("tmp", "../../dev/shm", "its /tmp is a link to /dev"),
        ("var/tmp", "/sys", "its /var/tmp is a link to /sys"),
        ("tmp", "/", "its /tmp is a link to /"),
        ("run", "../../..", "its /run is a link to /"),
        ("tmp", "tmp", "its /tmp is a link that never ends"),
        ("proc", "/etc", "its /proc is not a directory"),
    ],
)
def test_a_link_that_no_container_can_be_started_with_is_named(
    root: Path, path: str, target: str, words: str
) -> None:
    link(root, path, target)
    assert unfit(root) == words


def test_links_are_followed_through_their_directories_and_never_out_of_the_image(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").symlink_to("/proc")
    link(root, "tmp", "../outside")  # of the image there is no such place
    assert unfit(root) == ""
    (root / "var/tmp").rmdir()
    (root / "var").rmdir()
    (root / "var").symlink_to("/proc/self")
    assert unfit(root) == "its /var/tmp is a link to /proc"


def test_a_file_in_the_place_of_a_directory_is_named(root: Path) -> None:
    (root / "run").rmdir()
    (root / "run").write_text("")
    assert unfit(root) == "its /run is not a directory"
