"""Writing small files so that a reader, or a power cut, never meets half of one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_json(path: Path, value: Mapping[str, object], *, durable: bool) -> None:
    """Replace `path` by `value` in one step; with `durable` it is also on the disk on return."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with tmp.open("w", encoding="utf-8") as file:
            json.dump(value, file, allow_nan=False)
            file.write("\n")
            if durable:
                file.flush()
                os.fsync(file.fileno())
        tmp.replace(path)
    except BaseException:
        tmp.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Force a file's bytes, or a directory's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
