"""Why a rank could not be started, in a fixed word: what users can bring about is never said to be
the node's.
"""

import errno

import pytest

from dlq_common.start_causes import CAUSES, StartCause
from dlq_nodeagent.launch.launching import refusal
from dlq_nodeagent.model.mistakes import (
    LaunchRefused,
    NoRoom,
    UserFileFault,
    UserMistake,
    cause_of_own,
    cause_of_stage,
    start_exit_code,
)
from dlq_nodeagent.model.port import RuntimeFault

ERRORS = sorted(errno.errorcode)


def test_every_cause_is_in_the_table_once() -> None:
    assert set(CAUSES) == set(StartCause)


@pytest.mark.parametrize(
    ("stage", "number", "cause"),
    [
        ("cgroup", errno.EACCES, StartCause.CGROUP),
        ("cgroup", errno.ENOENT, StartCause.CGROUP),
        ("cgroup", errno.ENOSPC, StartCause.NO_ROOM),
        ("cgroup", errno.EINVAL, StartCause.SPEC),
        ("fork", errno.EAGAIN, StartCause.EXHAUSTED),
        ("fork", errno.EPERM, StartCause.SHIM),
        ("log", errno.EIO, StartCause.STATE),
        ("identity", errno.EPERM, StartCause.ACCOUNT),
        ("container", 0, StartCause.CONTAINER),
        ("container", errno.ENOENT, StartCause.CONTAINER_ENGINE),
        ("of a later shim", errno.EIO, StartCause.SHIM),
    ],
)
def test_a_step_of_the_shim_has_its_cause(stage: str, number: int, cause: StartCause) -> None:
    assert cause_of_stage(stage, number) is cause


@pytest.mark.parametrize("stage", ["chdir", "exec", "interpreter", "mount"])
def test_what_a_user_names_is_never_the_nodes_fault(stage: str) -> None:
    """With any error: whoever mounts a file system of their own makes it say what they like."""
    for number in ERRORS:
        told = start_exit_code(stage, number)
        assert told is not None or not CAUSES[cause_of_stage(stage, number)].of_node
        preparation = refusal(UserFileFault(number, "words", "/mnt/mine"))
        assert not CAUSES[StartCause(preparation.cause)].of_node


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (LaunchRefused("no such runtime"), StartCause.SPEC),
        (LaunchRefused("no GPU 3", StartCause.DEVICES), StartCause.DEVICES),
        (NoRoom("full"), StartCause.NO_ROOM),
        (PermissionError("no user id of their own"), StartCause.ACCOUNT),
        (PermissionError(errno.EACCES, "words", "/home/x"), StartCause.USER_FILES),
        (OSError(errno.ESTALE, "words", "/home/x"), StartCause.USER_FILES),
        (OSError(errno.EDQUOT, "words", "/home/x"), StartCause.EXHAUSTED),
        (TypeError("a fault of ours"), StartCause.AGENT_FAULT),
        (UserMistake("it exits with 126"), ""),
    ],
)
def test_what_keeps_a_rank_from_being_made_ready(error: Exception, cause: str) -> None:
    assert refusal(error).cause == cause


def test_in_the_agents_own_directories_it_is_the_agents_disk() -> None:
    gone = RuntimeFault("no directory for it")
    gone.__cause__ = FileNotFoundError(errno.ENOENT, "words")
    full = RuntimeFault("no directory for it")
    full.__cause__ = OSError(errno.ENOSPC, "words")
    assert cause_of_own(gone) is StartCause.STATE
    assert cause_of_own(full) is StartCause.NO_ROOM
    assert cause_of_own(LaunchRefused("argv is empty")) is StartCause.SPEC
