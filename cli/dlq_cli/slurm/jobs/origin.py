"""The command that submits a job, for Slurm's programs to show: its line, its script, its host."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

from dlq.v1 import job_pb2
from dlq_cli.app import session_of_caller

_LONGEST = 4_096


def origin_of(program: str, words: Sequence[str], script: str = "") -> job_pb2.OriginSpec:
    """`script`: the file as it was named; empty: there is none."""
    return job_pb2.OriginSpec(
        script_path=_line(str(Path.cwd() / script)) if script else "",
        command_line=_line(shlex.join([program, *words])),
        host=_line(socket.gethostname().partition(".")[0]),
        session_number=session_of_caller(),
    )


def _line(text: str) -> str:
    """One printable line, cut where it is too long."""
    return "".join(char if char.isprintable() else " " for char in text)[:_LONGEST]
