"""The control groups of the very host the tests run on, where it lets us have any."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.port import CgroupDir, CgroupTree, Limits
from support.waiting import wait_until

LIMITS = Limits(memory_bytes=64 << 20, pids_max=16, cpus=0.5)


@pytest.fixture
def tree() -> Iterator[CgroupTree]:
    found = detect(f"unit-{os.getpid()}")
    if found.mode == "none":
        pytest.skip(f"no control groups here: {found.why}")
    yield found
    found.remove()


@pytest.fixture
def dirs(tree: CgroupTree) -> Iterator[tuple[CgroupDir, ...]]:
    made = tree.create("1.1.0", LIMITS)
    yield made
    wait_until(lambda: directories.kill(made) == 0, what="an empty group")
    assert directories.remove(made)


def sleeper_in(dirs: tuple[CgroupDir, ...]) -> subprocess.Popen[bytes]:
    """A process with a child, both in the groups and deaf to SIGTERM."""
    joins = "; ".join(f"echo 0 > {each.path}/cgroup.procs" for each in dirs)
    script = f"{joins}; trap '' TERM; sleep 1000 & wait"
    return subprocess.Popen(["/bin/sh", "-c", script])


def test_processes_of_a_group_are_listed_counted_and_killed(dirs: tuple[CgroupDir, ...]) -> None:
    with sleeper_in(dirs) as process:
        wait_until(lambda: len(directories.pids(dirs)) == 2, what="two processes in the group")
        assert process.pid in directories.pids(dirs)
        assert directories.usage(dirs).pids == 2
        wait_until(lambda: directories.kill(dirs) == 0, what="an empty group")
        assert process.wait() == -9


def test_a_group_with_processes_is_not_removed(dirs: tuple[CgroupDir, ...]) -> None:
    with sleeper_in(dirs):
        wait_until(lambda: directories.pids(dirs), what="a process in the group")
        assert not directories.remove(dirs)
        wait_until(lambda: directories.kill(dirs) == 0, what="an empty group")


def test_a_new_group_knows_its_figures(dirs: tuple[CgroupDir, ...]) -> None:
    used = directories.usage(dirs)
    assert (used.pids, used.oom_kills) == (0, 0)
    assert used.cpu_s is not None


def test_making_a_group_again_is_fine(tree: CgroupTree, dirs: tuple[CgroupDir, ...]) -> None:
    assert tree.create("1.1.0", LIMITS) == dirs
