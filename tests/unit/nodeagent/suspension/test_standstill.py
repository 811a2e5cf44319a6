"""Processes in control groups: their room below the limit, and a group that runs already."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_nodeagent.cgroups.port import CgroupDir
from dlq_nodeagent.model.port import NotStill
from dlq_nodeagent.suspension.standstill import GroupStandstill


def group(at: Path, **files: str) -> GroupStandstill:
    for name, content in files.items():
        (at / name.replace("__", ".")).write_text(content)
    return GroupStandstill((CgroupDir("unified", str(at)),))


def test_files_that_the_kernel_gives_up_are_room(tmp_path: Path) -> None:
    still = group(
        tmp_path,
        memory__max="1000",
        memory__current="900",
        memory__stat="anon 100\ninactive_file 700\nactive_file 100\n",
    )
    assert still.room() == 800


def test_a_group_without_a_freezer_runs(tmp_path: Path) -> None:
    still = group(tmp_path)
    with pytest.raises(NotStill):
        still.freeze()
    still.thaw()


def test_a_group_that_runs_is_not_written_to(tmp_path: Path) -> None:
    still = group(tmp_path, cgroup__freeze="0\n")
    (tmp_path / "cgroup.freeze").chmod(0o400)
    still.thaw()
    assert (tmp_path / "cgroup.freeze").read_text() == "0\n"
