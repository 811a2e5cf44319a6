"""The bearer token of `/metrics`, in a file that only its owner may read.

The file is read again once it has changed. A missing file, or one that others may read, refuses all
scrapers.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_common.identity.private_files import read_private

_log = get_logger("master.metrics")
SHORTEST: Final = 16
LONGEST: Final = 1024
_KEY = "metrics.token_file"


class TokenFile:
    """A bearer token in a file of mode 0600."""

    def __init__(self, path: Path) -> None:
        """ConfigError: the file is of no use."""
        self._path = path
        self._stamp = self._stamped()
        self._digest = _digest(_read(path))

    def holds(self, given: str) -> bool:
        """Whether this is the file's present token."""
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp, self._digest = stamp, b""
            try:
                self._digest = _digest(_read(self._path))
            except ConfigError as error:
                _log.error("metrics_token_unusable", error=error.what)
        return bool(self._digest) and hmac.compare_digest(_digest(given), self._digest)

    def _stamped(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size, found.st_mode


def token_file_of(name: str) -> TokenFile | None:
    """The configured file; None: there is none. ConfigError: it is of no use."""
    if not name:
        return None
    if not name.startswith("/"):
        raise ConfigError(f"{_KEY}: {name!r} is not absolute", key=_KEY)
    return TokenFile(Path(name))


def _read(path: Path) -> str:
    """The token. ConfigError: the file is of no use."""
    try:
        token = read_private(path).decode("ascii").strip()
    except OSError as error:
        raise ConfigError(f"{_KEY}: {path}: {error.strerror}", key=_KEY) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{_KEY}: {path}: the token is not ASCII", key=_KEY) from None
    except ConfigError as error:
        raise ConfigError(f"{_KEY}: {error.what}", hint=error.hint, key=_KEY) from None
    if not SHORTEST <= len(token) <= LONGEST or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{_KEY}: {path}: a token has {SHORTEST} to {LONGEST} characters, and no space",
            hint=f"openssl rand -hex 32 > {path}",
            key=_KEY,
        )
    return token


def _digest(token: str) -> bytes:
    """A digest of fixed length, so that the time of a comparison reveals nothing."""
    return hashlib.sha256(token.encode()).digest()
