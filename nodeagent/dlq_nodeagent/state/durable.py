"""Files that a crash leaves whole: the old content or the new, never a part."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put a private file in the place of another, on the disk when this returns. Raises OSError."""
    draft = path.with_suffix(".tmp")
    with open(draft, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
