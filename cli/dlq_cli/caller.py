"""The process that called a command: this one, or the caller of a server that runs it."""

from __future__ import annotations

import os

_called_by: list[int] = [0]  # 0: this process itself


def called_by(pid: int) -> None:
    """From now on this process runs commands for that one."""
    _called_by[0] = pid


def session_of_caller() -> int:
    """The number of the session in which the command was called."""
    return os.getsid(_called_by[0])
