"""Our own programs that may be a rank's main process, installed where every user's job can start
them.
"""

import os
import stat
from pathlib import Path

from dlq_common.start_causes import StartCause
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.shim.binary import ShimMissing, ensure_program


def install_program(state_dir: Path, program: Path) -> None:
    """Copy a program to where every user can start it, if dlq's own directory is closed to them.

    OSError: it cannot be written. Running ranks keep the file from which they were started.
    """
    if not program.is_file() or _is_open_to_all(program):
        return
    copy = _copy_at(state_dir, program)
    copy.parent.mkdir(exist_ok=True)
    copy.parent.chmod(0o755)
    draft = copy.with_name(f".{copy.name}.{os.getpid()}")
    draft.write_bytes(program.read_bytes())
    draft.chmod(0o755)
    draft.replace(copy)


def program_at(name: str, state_dir: Path | None) -> str:
    """The path at which every user's job can start it. LaunchRefused: it was not built."""
    try:
        program = ensure_program(name)
    except ShimMissing as missing:
        raise LaunchRefused(str(missing), StartCause.INSTALL) from None
    if state_dir is None or _is_open_to_all(program):
        return str(program)
    copy = _copy_at(state_dir, program)
    return str(copy if copy.is_file() else program)


def program_mount(name: str, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container must see to start it."""
    program = program_at(name, state_dir)
    return (Mount(program, program, read_only=True),)


def _copy_at(state_dir: Path, program: Path) -> Path:
    return state_dir / "programs" / program.name


def _is_open_to_all(program: Path) -> bool:
    modes = [path.stat().st_mode for path in (program, *program.resolve().parents)]
    return all(mode & stat.S_IXOTH for mode in modes)
