"""Why a rank could not be started, in fixed words, and whether that speaks against its node: one
table.

Only faults of the node itself speak against it. Causes that a user can bring about do not: files,
images, ports, limits, a host full of leftovers of jobs. Both sides use this: an agent says the
word, the master looks it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class StartCause(StrEnum):
    """A fixed word on the wire; words may be added, none changes its meaning."""

    # of the node
    DEVICES = "devices"
    CGROUP = "cgroup"
    SHIM = "shim"
    STATE = "state"
    INSTALL = "install"
    CONTAINER_ENGINE = "container_engine"
    # without blame, or caused by jobs
    GPU_HELD = "gpu_held"
    NO_ROOM = "no_room"
    EXHAUSTED = "exhausted"
    PORTS = "ports"
    ACCOUNT = "account"
    SPEC = "spec"
    USER_FILES = "user_files"
    CHECKPOINTS = "checkpoints"
    IMAGE = "image"
    CONTAINER = "container"
    BARRIER = "barrier"
    WITHDRAWN = "withdrawn"
    OTHER_ATTEMPT = "other_attempt"
    AGENT_FAULT = "agent_fault"


class Known(NamedTuple):
    """The properties of a cause."""

    of_node: bool
    words: str
    elsewhere: bool = True
    """Whether another node may be able to start it: the job then avoids this one."""


CAUSES: Mapping[StartCause, Known] = {
    StartCause.DEVICES: Known(True, "a GPU that it was given is not there, or has no device file"),
    StartCause.CGROUP: Known(True, "its control group cannot be made or joined"),
    StartCause.SHIM: Known(True, "the shim does not start, or cannot make its files"),
    StartCause.STATE: Known(True, "the agent cannot read or write its own directories"),
    StartCause.INSTALL: Known(True, "something of dlq itself is missing or set wrongly there"),
    StartCause.CONTAINER_ENGINE: Known(True, "podman itself cannot be run"),
    StartCause.GPU_HELD: Known(False, "something else computes on a GPU that it was given"),
    StartCause.NO_ROOM: Known(False, "a disk is full"),
    StartCause.EXHAUSTED: Known(False, "processes, memory, files or a quota are used up"),
    StartCause.PORTS: Known(False, "too few ports are free"),
    StartCause.ACCOUNT: Known(False, "its user has no account there"),
    StartCause.SPEC: Known(False, "the requested program cannot be run there", elsewhere=False),
    StartCause.USER_FILES: Known(False, "a file system fails over a file of its user's"),
    StartCause.CHECKPOINTS: Known(
        False, "its place for checkpoints is not its user's alone: the site's matter"
    ),
    StartCause.IMAGE: Known(False, "its image cannot be pulled, or is gone"),
    StartCause.CONTAINER: Known(False, "podman made no container of its image and mounts"),
    StartCause.BARRIER: Known(False, "it was not ready when the rest of its gang was"),
    StartCause.WITHDRAWN: Known(False, "it was not wanted any more"),
    StartCause.OTHER_ATTEMPT: Known(
        False, "another attempt has its name there (a restored backup)"
    ),
    StartCause.AGENT_FAULT: Known(False, "an error in the agent, which is in its log"),
}


# Things that a user names and that a node may lack: a file, a directory, a mount, an image. One
# such failure speaks against nobody; control/attempts/quarantine.py compares nodes.
LACKED = frozenset({StartCause.USER_FILES, StartCause.IMAGE, StartCause.CONTAINER})


def may_start_elsewhere(word: str) -> bool:
    """Whether a start that failed so may go well on another node; so it is of unknown words."""
    return word not in CAUSES or CAUSES[StartCause(word)].elsewhere


def speaks_against_node(word: str) -> bool:
    """Whether a start that failed so does. Agents of before say no word: there every one does, as
    then. A word of a later version does not."""
    if not word:
        return True
    return word in CAUSES and CAUSES[StartCause(word)].of_node
