"""The token of a screen on the wall: it opens one page and one read, and nothing else.

It lies in a file that only its owner can read. It stays when the server starts again, and without
the file it is worth nothing from the next look on.
"""

from __future__ import annotations

import hmac
import secrets
from contextlib import suppress
from pathlib import Path

from dlq_common.identity.files import write_private

WALL_FILE = "wall.token"
SECRET_BYTES = 32


class WallToken:
    """The token of one server; None: such a server has no wall."""

    def __init__(self, home: Path | None) -> None:
        self._path = None if home is None else home / WALL_FILE

    def made(self) -> str:
        """The token, made now if there is none."""
        assert self._path is not None
        kept = self._kept()
        if not kept:
            kept = secrets.token_urlsafe(SECRET_BYTES)
            write_private(self._path, kept.encode() + b"\n")
        return kept

    def revoke(self) -> None:
        """The token opens nothing from now on."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def opens(self, told: str) -> bool:
        """Whether this is the token that lies there now."""
        kept = self._kept()
        return bool(kept) and hmac.compare_digest(kept.encode(), told.encode("utf-8", "replace"))

    def _kept(self) -> str:
        if self._path is None:
            return ""
        with suppress(OSError, UnicodeDecodeError):
            return self._path.read_text().strip()
        return ""
