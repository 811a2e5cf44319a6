"""Tests once whether the kernel enforces its own groups: a process joins one, and a rule holds.

Some sandboxed kernels accept rules and enforce none. So the agent makes a group at its start, with
a rule against a harmless device. A child joins it, and opens that device.
"""

import os
import select
import signal
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.port import CgroupDir, CgroupTree, Limits, OnlyMinors
from dlq_nodeagent.cgroups.trees import NoTree, V1Tree, V2Tree

NOT_KEPT = "the kernel takes the rule and does not keep it"
_NAME = "trial"  # no attempt has it: theirs have dots
_MEMORY, _NULL = 1, 3  # the major number of /dev/null and its like; every shell needs /dev/null
_HARMLESS = ("full", "zero")
_PATIENCE_S = 30.0
# 3: it could not join; 4: it could not open, and the last line says why.
_CHILD = (
    'device=$1; shift; for group; do echo 0 > "$group/cgroup.procs" || exit 3; done; '
    '(: < "$device") || exit 4'
)


def tried(tree: CgroupTree, dev: Path = Path("/dev")) -> CgroupTree:
    """The working part of the tree: `devices_open` says why rules fail; NoTree if no process can
    join a group.
    """
    if not isinstance(tree, (V1Tree, V2Tree)):
        return tree
    device = None if tree.devices_open else _harmless(dev)
    if not tree.devices_open and device is None:
        tree.devices_open = f"there is no device in {dev} to try a rule with"
    rules = () if device is None else (OnlyMinors(_MEMORY, frozenset({_NULL})),)
    try:
        dirs = tree.create(_NAME, _limits(rules))
    except OSError as error:
        if not rules:
            return NoTree(f"no group can be made: {error}")
        tree.devices_open = f"the kernel refuses the rule: {error}"
        return tried(tree, dev)
    try:
        code, words = _child(dirs, device)
    finally:
        directories.remove(dirs)
    if code == 3:
        return NoTree(f"no process can join a group: {words}")
    if device is not None and not (code == 4 and os.strerror(1) in words):
        tree.devices_open = NOT_KEPT
    return tree


def _child(dirs: Sequence[CgroupDir], device: Path | None) -> tuple[int, str]:
    """The child's exit code, and its last words. posix_spawn: the agent never forks."""
    words = ["sh", "-c", _CHILD, "sh", str(device or "/dev/null"), *(str(it.path) for it in dirs)]
    with tempfile.TemporaryFile() as said:
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, said.fileno(), 2),
        )
        try:
            pid = os.posix_spawn("/bin/sh", words, {"LC_ALL": "C"}, file_actions=actions)
        except OSError as error:
            return 3, str(error)
        code = _waited(pid)
        said.seek(0)
        return code, " ".join(said.read().decode("utf-8", "replace").split()[-20:])


def _waited(pid: int) -> int:
    """The exit code; 3 for a child that did not end in time, and is killed."""
    process = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([process], [], [], _PATIENCE_S)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(process)
    return code if ended else 3


def _harmless(dev: Path) -> Path | None:
    """A device that we may open ourselves, and that a rule for its major refuses."""
    for path in (dev / name for name in _HARMLESS):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == _MEMORY:
            return path
    return None


def _limits(rules: tuple[OnlyMinors, ...]) -> Limits:
    return Limits(memory_bytes=None, pids_max=None, cpus=None, devices=rules)
