"""The agent tries its control groups once: sandboxed kernels take rules that they do not keep."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq_nodeagent.cgroups import trial
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.cgroups.trees import NoTree, V1Tree, V2Tree
from dlq_nodeagent.cgroups.trial import NOT_KEPT, tried

FILES = ("cgroup.procs", "cgroup.subtree_control", "memory.max", "pids.max", "cpu.max")


def tree_in(base: Path, attach: Callable[..., None] = lambda group, rules: None) -> V2Tree:
    """A tree in a plain directory: every write is taken, and nothing is kept."""

    def make(path: Path) -> None:
        path.mkdir(exist_ok=True)
        for name in FILES:
            (path / name).touch()

    make(base)
    return V2Tree(base, "n1", make_dir=make, attach=attach, devices_open="")


def test_a_kernel_that_takes_the_rule_and_does_not_keep_it_is_found_out(tmp_path: Path) -> None:
    rules: list[OnlyMinors] = []
    tree = tree_in(tmp_path / "base", lambda group, given: rules.extend(given))
    assert tried(tree) is tree
    assert (tree.devices_open, [rule.major for rule in rules]) == (NOT_KEPT, [1])


def test_a_kernel_that_keeps_the_rule_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child answers as one does that is refused."""
    words = trial._CHILD.replace(': < "$device"', "echo no: Operation not permitted >&2; false")
    monkeypatch.setattr(trial, "_CHILD", words)
    assert tried(tree_in(tmp_path / "base")).devices_open == ""


def test_another_refusal_than_that_of_a_rule_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = trial._CHILD.replace(': < "$device"', ': < "$device/nothing"')
    monkeypatch.setattr(trial, "_CHILD", words)
    assert tried(tree_in(tmp_path / "base")).devices_open == NOT_KEPT


def test_a_kernel_where_no_process_can_join_a_group_has_no_groups(tmp_path: Path) -> None:
    tree = tree_in(tmp_path / "base")
    joining = tree._make_dir

    def refuses(path: Path) -> None:
        joining(path)
        (path / "cgroup.procs").unlink()
        (path / "cgroup.procs").mkdir()

    tree._make_dir = refuses
    found = tried(tree)
    assert isinstance(found, NoTree)
    assert "no process can join a group" in found.why
    assert found.devices_open == found.why


def test_a_rule_that_cannot_be_made_leaves_the_groups_without_it(tmp_path: Path) -> None:
    def refuse(group: Path, rules: object) -> None:
        raise OSError(22, "Invalid argument")

    tree = tree_in(tmp_path / "base", refuse)
    assert tried(tree) is tree
    assert "the kernel refuses the rule" in tree.devices_open


def test_without_groups_there_is_nothing_to_try() -> None:
    none = NoTree("nothing here")
    assert tried(none) is none


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_the_groups_of_this_host_are_as_good_as_a_child_finds_them() -> None:
    tree = detect(f"trial-{os.getpid()}")
    if not isinstance(tree, V1Tree) or tree.devices_open:
        pytest.skip(f"no devices controller of v1 here: {tree.why}")
    assert tried(tree).devices_open in ("", NOT_KEPT)
    assert tree.groups() == {}
    tree.remove()


def test_the_words_of_the_child_are_a_program() -> None:
    subprocess.run(["/bin/sh", "-n", "-c", trial._CHILD], check=True)
