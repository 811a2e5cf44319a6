"""Rules for names and paths from outside dlq, as pure functions.

Each returns its argument unchanged or raises ValueError with one line that never repeats control
characters. A checked text is safe in a log line, a table and an environment. The name of a job may
hold slashes; all others are safe in file names too. Nothing here ever reaches a shell.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_NAME = 256
LONGEST_PATH_BYTES = 4096
# Linux refuses a single variable beyond 128 KiB and a whole environment near a quarter of the
# stack.
LONGEST_ENV_VALUE_BYTES = 128 * 1024 - 1
LARGEST_ENV_BYTES = 1024 * 1024

_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}", re.ASCII)
_ORGANISATION = re.compile(r"[a-z0-9][a-z0-9-]{0,30}", re.ASCII)
# Of a guest: USER@ORGANISATION. No user of this cluster has such a name.
GUEST_MARK = "@"
# The second form is that of functions that a bash exports, such as `module`.
_ENV_NAME = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]{0,255}|BASH_FUNC_[A-Za-z0-9_.:+-]{1,240}%%", re.ASCII
)
_NODE_NAME = re.compile(
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
# Variables with which dlq describes a job to itself, and the gang to torchrun. A submitter's values
# would mislead.
RESERVED_ENV_PREFIXES = ("DLQ_", "PET_")


def check_job_name(name: str) -> str:
    """Any printable text, as in Slurm, whose programs put paths in it; at most 256 characters."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"job name {shown(name)} is not allowed: use up to {LONGEST_NAME} printable characters"
        )
    if ".." in name.split("/"):
        raise ValueError(f"job name {shown(name)} is not allowed: it holds '..'")
    return name


def job_name_from(text: str) -> str:
    """A name for a job that got none, made from its program's; it passes `check_job_name`."""
    plain = (char if char.isprintable() and char != "/" else "_" for char in text)
    made = "".join(plain).strip()[:LONGEST_NAME]
    return "job" if made in {"", ".."} else made


def check_word(name: str, kind: str) -> str:
    """A name that operators choose (queue, team, label): lower-case letters, digits, `_`, `-`."""
    if not _WORD.fullmatch(name):
        raise ValueError(
            f"{kind} {shown(name)} is not allowed: use up to 63 lower-case letters, digits, _ and -"
        )
    return name


def check_user_name(name: str) -> str:
    """A portable POSIX login name of at most 32 characters."""
    if not _USER.fullmatch(name):
        raise ValueError(f"user name {shown(name)} is not allowed: it is not a POSIX login name")
    return name


def check_organisation(name: str) -> str:
    """The word by which a cluster calls another organisation; a part of the names of its guests."""
    if not _ORGANISATION.fullmatch(name):
        raise ValueError(
            f"organisation {shown(name)} is not allowed: use up to 31 lower-case letters, digits "
            "and -"
        )
    return name


def check_person_name(name: str) -> str:
    """The name of a user, or of a guest of another organisation: `ann@orga`."""
    user, mark, organisation = name.partition(GUEST_MARK)
    check_user_name(user)
    if mark:
        check_organisation(organisation)
    return name


def check_node_name(name: str) -> str:
    """A host name: lower-case labels of letters, digits and inner dashes, at most 253."""
    if len(name) > 253 or not _NODE_NAME.fullmatch(name):
        raise ValueError(
            f"node name {shown(name)} is not allowed: it is not a lower-case host name"
        )
    return name


def check_env_name(name: str) -> str:
    """A variable that a submitter may set: dlq's own variables are refused."""
    if not _ENV_NAME.fullmatch(name):
        raise ValueError(
            f"environment name {shown(name)} is not allowed: use letters, digits and _"
        )
    if name.startswith(RESERVED_ENV_PREFIXES):
        raise ValueError(f"environment name {name} is not allowed: dlq sets DLQ_* and PET_* itself")
    return name


def check_env(env: dict[str, str]) -> dict[str, str]:
    """A whole environment: every name, no NUL in a value, and sizes that exec will take."""
    total = 0
    for name, value in env.items():
        check_env_name(name)
        size = len(value.encode("utf-8", "surrogateescape"))
        if "\0" in value:
            raise ValueError(f"the value of {name} holds a NUL byte")
        if size > LONGEST_ENV_VALUE_BYTES:
            raise ValueError(f"the value of {name} is too long: {size} bytes, 128 KiB at most")
        total += size + len(name) + 2
    if total > LARGEST_ENV_BYTES:
        raise ValueError(
            f"the environment is too large: {total} bytes, {LARGEST_ENV_BYTES} at most"
        )
    return env


def check_argument(text: str, what: str) -> str:
    """A word of a command line: anything but NUL, which exec cannot carry."""
    if "\0" in text:
        raise ValueError(f"{what} holds a NUL byte")
    return text


def check_absolute_path(path: str, what: str) -> str:
    """An absolute path without `..`, empty parts at odd places, or control characters.

    Only the text is checked. The program that opens the path as the user finds out about existence
    and links.
    """
    if not path.startswith("/"):
        raise ValueError(f"{what} {shown(path)} is not allowed: write an absolute path")
    return _check_path(path, what)


def check_relative_path(path: str, what: str) -> str:
    """A path that stays below the directory it is joined to: not absolute, no `..`."""
    if not path or path.startswith("/"):
        raise ValueError(f"{what} {shown(path)} is not allowed: write a path below the directory")
    return _check_path(path, what)


def shown(text: str, most: int = 60) -> str:
    """Untrusted text for one line of a message: quoted, escaped, cut."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."


def printable(text: str) -> str:
    """Untrusted text for a table: control, format and lone surrogate characters become `?`."""
    return "".join("?" if unicodedata.category(char)[0] == "C" else char for char in text)


def _check_path(path: str, what: str) -> str:
    if len(path.encode("utf-8", "surrogateescape")) > LONGEST_PATH_BYTES:
        raise ValueError(f"{what} {shown(path)} is not allowed: longer than a path can be")
    if printable(path) != path:
        raise ValueError(f"{what} {shown(path)} is not allowed: it holds control characters")
    if ".." in path.split("/"):
        raise ValueError(f"{what} {shown(path)} is not allowed: it holds '..'")
    return path
