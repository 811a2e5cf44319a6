"""Files that commands write for people: an existing file is replaced only on request."""

from __future__ import annotations

from pathlib import Path

from dlq_common.errors import InvalidRequest


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Write a new file; with `force` also over an old one. InvalidRequest names the path."""
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidRequest(
            f"{path}: it is there already", hint="--force writes over it"
        ) from None
    except OSError as error:
        raise InvalidRequest(f"{path}: {(error.strerror or str(error)).lower()}") from None
