"""What a job leaves in its own directory is taken away, and nothing else."""

import os
import threading
from pathlib import Path

import pytest

from dlq_nodeagent.jobtree.sweeping import sweep


def test_small_files_stay_and_large_ones_and_directories_go(tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "a/b").mkdir(parents=True)
    (job / "a/b/fill").write_bytes(b"x" * 100_000)
    (job / "beat").write_text("{}")
    (job / "fill").write_bytes(b"x" * 100_000)
    os.mkfifo(job / "pipe")
    assert sweep(job)
    assert os.listdir(job) == ["beat"]


def test_what_links_lead_to_is_not_touched(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "file").write_bytes(b"mine" * 100_000)
    job = tmp_path / "job"
    (job / "deep").mkdir(parents=True)
    (job / "directory").symlink_to(keep)
    (job / "deep/file").symlink_to(keep / "file")
    assert sweep(job)
    assert (keep / "file").read_bytes() == b"mine" * 100_000
    assert os.listdir(job) == []


def test_a_directory_that_is_a_link_is_not_swept_at_all(tmp_path: Path) -> None:
    (tmp_path / "keep/sub").mkdir(parents=True)
    (tmp_path / "job").symlink_to(tmp_path / "keep")
    assert not sweep(tmp_path / "job")
    assert (tmp_path / "keep/sub").is_dir()


def test_names_that_are_swapped_for_links_all_the_time_never_lead_out(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    for number in range(20):
        (keep / f"file{number}").write_text("mine")
    job, stop = tmp_path / "job", threading.Event()
    (job / "a").mkdir(parents=True)

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            place = job / f"d{number % 50}"
            try:
                place.mkdir()
                place.rename(job / "a" / f"gone{number}")
                place.symlink_to(keep)
            except OSError:
                continue

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(200):
            sweep(job)
    finally:
        stop.set()
        swapper.join()
    assert len(os.listdir(keep)) == 20


def test_a_tree_that_is_too_deep_is_left_for_those_who_set_it_aside(tmp_path: Path) -> None:
    deep = tmp_path / "job"
    deep.mkdir()
    at = os.open(deep, os.O_RDONLY)
    for _ in range(80):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    assert not sweep(deep)


def test_a_directory_that_is_gone_already_is_fine(tmp_path: Path) -> None:
    assert sweep(tmp_path / "job")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_directory_of_another_user_is_not_emptied_for_who_moved_it_here(tmp_path: Path) -> None:
    theirs, mine = 1001, 1002
    job = tmp_path / "job"
    (job / "own/results").mkdir(parents=True)
    (job / "own/results/model").write_bytes(b"x" * 100_000)
    for path, uid in ((job, mine), (job / "own", mine), (job / "own/results", theirs)):
        os.chown(path, uid, uid)
    assert not sweep(job)
    assert (job / "own/results/model").exists()
