"""The agent's state directory: refused when shared (docs/running/security.md), written durably."""

import os
import stat
from pathlib import Path

from dlq_common.errors import ConfigError

_OWN_DIRECTORIES = ("scripts", "attempts", "profiler", "profiles", "programs", "slurm")


def refuse_if_foreign(state_dir: Path) -> None:
    """ConfigError for a directory that another has made or could have filled: programs of all
    users' jobs are started from it.
    """
    for path in (state_dir, *(state_dir / name for name in _OWN_DIRECTORIES)):
        try:
            facts = path.lstat() if path != state_dir else path.stat()
        except FileNotFoundError:
            continue
        if (
            stat.S_ISDIR(facts.st_mode)
            and facts.st_uid in (0, os.geteuid())
            and not facts.st_mode & stat.S_IWOTH
        ):
            continue
        raise ConfigError(
            f"{path} is not the agent's alone (uid {facts.st_uid}, mode "
            f"{stat.S_IMODE(facts.st_mode):04o}), so other users could change the "
            "programs of jobs: remove it, or name another directory",
            key="node.state_dir",
        )


def replace_file(path: Path, content: bytes) -> None:
    """Put a private file in the place of another, on the disk when this returns. Raises OSError."""
    draft = path.with_suffix(".tmp")
    try:
        with open(draft, "wb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # a descriptor has no name
        raise OSError(error.errno, error.strerror, str(path)) from None
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
