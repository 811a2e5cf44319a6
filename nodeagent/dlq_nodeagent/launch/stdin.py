"""The stdin of rank 0 if a client brings it: the program that passes it on, and how to reach that.

`dlq-stdin` (shim/stdin) runs the rank's program and is part of the job. So a restart or a silence
of agent and master ends nothing, and the client comes back.
"""

from collections.abc import Mapping
from pathlib import Path

from dlq_nodeagent.launch.programs import program_at, program_mount
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.shim.binary import STDIN_NAME

_SOCKET = "stdin"
VARIABLE = "DLQ_STDIN"


def _is_clients(launch: Launch) -> bool:
    return bool(launch.stdin) and launch.key.node_rank == 0


def with_stdin(
    launch: Launch, words: tuple[str, ...], *, job_dir: str, state_dir: Path | None
) -> tuple[str, ...]:
    """The command of a rank, with `dlq-stdin` before it if its stdin is a client's."""
    if not _is_clients(launch):
        return words
    program = program_at(STDIN_NAME, state_dir)
    return (program, launch.stdin, f"{job_dir}/{_SOCKET}", "--", *words)


def stdin_environment(launch: Launch, state_dir: Path | None) -> Mapping[str, str]:
    """The variable with the program through which the client's bytes arrive (`attach`)."""
    return {VARIABLE: program_at(STDIN_NAME, state_dir)} if _is_clients(launch) else {}


def stdin_mount(launch: Launch, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container with a client's stdin must see."""
    if not _is_clients(launch):
        return ()
    return program_mount(STDIN_NAME, state_dir)
