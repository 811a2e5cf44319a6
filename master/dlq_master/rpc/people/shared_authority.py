"""The CA of several masters: its files travel sealed in the database, so that a standby has them.

A change of the CA is files of the leader's state directory (`authorities.py`). If there is a
`pair.key`, the leader also stores all of them in one row of `meta`, sealed with that key, before it
answers. A standby writes them to its disk as it reads the turns. So another master can continue a
change.

`dlq-master pair export` draws the key, which travels with the CA and is never in the database. So
readers of the rows learn no key. Each stored state has a number (NUMBER:SEALED). Each master
remembers the newest number on its disk (`ca.number`), so that an older state never replaces a newer
one. A leader whose files differ from the state with its own number has newer files, and stores
them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet, InvalidToken

from dlq_common.daemon.logs import get_logger
from dlq_common.identity.files import write_private
from dlq_common.identity.private_files import read_private
from dlq_master.rpc.people.authorities import (
    CERTIFICATE,
    DONE,
    KEY,
    NEXT,
    PAIR_KEY,
    SEEDS,
    STAGED,
    complete,
)
from dlq_master.store.batch import CA_FILES

NUMBER: Final = "ca.number"
_SHARED: Final = (KEY, CERTIFICATE, SEEDS, NEXT, STAGED)

_log = get_logger("master.authority")


def make_pair_key(state_dir: Path) -> bytes:
    """The key of this pair; drawn if there is none."""
    path = state_dir / PAIR_KEY
    if not path.exists():
        write_private(path, base64.urlsafe_b64encode(secrets.token_bytes(32)))
        owner = state_dir.stat()
        if os.geteuid() == 0:  # the account that serves reads it
            os.chown(path, owner.st_uid, owner.st_gid)
    return read_private(path)


class SharedAuthority:
    """The files of the CA in one state directory, and their state in the database."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir
        self._stored = ""  # the digest of the files that the database has
        self._refused = 0  # the number of a state that could not be opened

    def is_newer(self, meta: Mapping[str, str]) -> bool:
        """Whether the database has a state that was never on this master's disk."""
        number = _number(meta)
        return max(self._number, self._refused) < number and (self._dir / PAIR_KEY).exists()

    def take(self, meta: Mapping[str, str]) -> bool:
        """Write a newer state to disk; whether anything has changed. May be repeated
        after a crash.
        """
        if not self.is_newer(meta):
            return False
        number = _number(meta)
        files = self._opened(meta)
        if files is None:
            self._refused = number
            _log.error("shared_ca_unreadable", number=number, hint=f"copy {PAIR_KEY} of the leader")
            return False
        changed = files != self._files()
        if changed:
            self._put(files)
        self._note(number)
        self._stored = _digest(files)
        _log.info("shared_ca_taken", number=number, changed=changed)
        return changed

    def news(self, meta: Mapping[str, str] | None = None) -> str | None:
        """The word to store in `CA_FILES`; None: the database has these files, or there is no key.

        `meta`: the row's content, for a master that starts.
        """
        if not (self._dir / PAIR_KEY).exists():
            return None
        files = self._files()
        if meta is not None and files == self._opened(meta):
            self._stored = _digest(files)
        if _digest(files) == self._stored:
            return None
        number = max(self._number, 0 if meta is None else _number(meta)) + 1
        return f"{number}:{self._box().encrypt(json.dumps(_text(files)).encode()).decode()}"

    def stored(self, word: str) -> None:
        """The database has this word of `news`."""
        self._note(_number({CA_FILES: word}))
        self._stored = _digest(self._opened({CA_FILES: word}) or {})

    # --- helpers, in order of use -------------------------------------------------------------

    @property
    def _number(self) -> int:
        path = self._dir / NUMBER
        return int(path.read_text()) if path.exists() else 0

    def _note(self, number: int) -> None:
        write_private(self._dir / NUMBER, str(number).encode())

    def _files(self) -> dict[str, bytes]:
        """The content of each existing file."""
        found = {}
        for name in _SHARED:
            path = self._dir / name
            if path.exists():
                found[name] = path.read_bytes() if name == CERTIFICATE else read_private(path)
        return found

    def _box(self) -> Fernet:
        return Fernet(read_private(self._dir / PAIR_KEY))

    def _opened(self, meta: Mapping[str, str]) -> dict[str, bytes] | None:
        """The files of the state in the database; None: it has none, or another key sealed it."""
        _, _, token = meta.get(CA_FILES, "").partition(":")
        if not token:
            return None
        try:
            content = json.loads(self._box().decrypt(token.encode()))
        except InvalidToken:
            return None
        return {name: base64.b64decode(text) for name, text in content.items()}

    def _put(self, files: Mapping[str, bytes]) -> None:
        """Write the files; the two files of the present CA change together, as at the end of a
        change.
        """
        if SEEDS in files:
            write_private(self._dir / SEEDS, files[SEEDS])
        own = self._files()
        if (own.get(KEY), own.get(CERTIFICATE)) != (files[KEY], files[CERTIFICATE]):
            write_private(self._dir / DONE, files[KEY] + files[CERTIFICATE])
            complete(self._dir)
        for name in (NEXT, STAGED):
            if name in files:
                write_private(self._dir / name, files[name])
            else:
                (self._dir / name).unlink(missing_ok=True)


def _number(meta: Mapping[str, str]) -> int:
    number, _, _ = meta.get(CA_FILES, "").partition(":")
    return int(number or 0)


def _text(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in sorted(files.items())}


def _digest(files: Mapping[str, bytes]) -> str:
    return hashlib.sha256(json.dumps(_text(files)).encode()).hexdigest()
