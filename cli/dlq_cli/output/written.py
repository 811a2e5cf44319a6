"""Files that commands write for people: an existing file is replaced only on request."""

from __future__ import annotations

from pathlib import Path

from dlq_common.errors import InvalidRequest


def check_other(path: Path, source: Path) -> None:
    """InvalidRequest if the output is the file that the command reads, by whatever name."""
    try:
        same = path.samefile(source) and source.is_file()
    except (OSError, ValueError):  # one of them is not there
        return
    if same:
        raise InvalidRequest(
            f"{path}: it is the input, and would be overwritten", hint="give another path"
        )


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
