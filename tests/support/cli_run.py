"""Runs `dlq` inside the test's process and keeps what it said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from dlq_cli.main import run


class Said(NamedTuple):
    """Exit code, stdout and stderr of one command."""

    code: int
    out: str
    err: str


class Dlq:
    """`dlq` with one identity directory, out of any terminal."""

    def __init__(self, home: Path, environ: Mapping[str, str] | None = None) -> None:
        self._environ = {
            "DLQ_HOME": str(home),
            "DLQ_LOGIN_SOCKET": str(home / "no-broker"),
            "DLQ_PATIENCE_S": "5",
            "NO_COLOR": None,
            **(environ or {}),
        }

    def __call__(self, *arguments: str, stdin: bytes = b"", patience_s: float = 5.0) -> Said:
        """One command to its end."""
        with CliRunner().isolation(
            input=stdin, env={**self._environ, "DLQ_PATIENCE_S": str(patience_s)}
        ) as (out, err, _):
            code = run(list(arguments))
            return Said(
                code,
                out.getvalue().decode("utf-8", "replace"),
                err.getvalue().decode("utf-8", "replace"),
            )
