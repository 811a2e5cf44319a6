"""Checks that this host names the users whose jobs may run here."""

import os
import stat
from pathlib import Path

from dlq_common.errors import ConfigError

# Where the shim looks too, in the same order and with the same distrust (shim/users.c).
HOST_MAP = Path("/etc/dlq/users.map")

_REMEDY = """\
write {path}, one line for each user whose jobs may run here:
    UID:GID:GROUP,GROUP        for example 1001:1001:27,2001
owned by root and writable by nobody else (chown root:root, chmod 0644); or set jobs.run_as = self"""  # noqa: E501


def check_users_map(state_dir: Path, host_map: Path = HOST_MAP) -> None:
    """Refuse a host whose map is missing or untrustworthy: the shim would refuse every job.

    Its entries are not checked, since they may change while the agent runs. Raises ConfigError.
    """
    own = state_dir / "users.map"
    path, facts = own, _facts(own)
    if facts is None or stat.S_ISLNK(facts.st_mode):
        path, facts = host_map, _facts(host_map)
    if facts is None:
        raise _refusal(f"there is neither {own} nor {host_map}", host_map)
    if not stat.S_ISREG(facts.st_mode):
        raise _refusal(f"{path} is not a regular file", path)
    if facts.st_uid != 0 or facts.st_mode & 0o022:
        raise _refusal(f"others than root may write {path}", path)


def _facts(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _refusal(why: str, path: Path) -> ConfigError:
    return ConfigError(
        f"jobs.run_as = submitter, but {why}: no job could run",
        hint=_REMEDY.format(path=path),
        key="jobs.run_as",
    )
