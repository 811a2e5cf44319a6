"""The directories of a job that this node accepts; they are made with the user's rights."""

import os
import stat
from collections.abc import Sequence

from dlq_common.text.names import check_absolute_path
from dlq_nodeagent.model.mistakes import UserFileFault, UserMistake, exit_code_of


class PathRefused(UserMistake):
    """The path cannot be used on this node; the text is for the user."""


def checked_path(path: str, what: str, roots: Sequence[str]) -> str:
    """The path without doubled slashes and dots. It only looks at the text.

    PathRefused: it is not absolute, has `..`, or is not below one of `roots` (any path, if there
    are none).
    """
    try:
        check_absolute_path(path, what)
    except ValueError as error:
        raise PathRefused(str(error)) from None
    normal = os.path.normpath(path)
    if normal.startswith("//"):  # POSIX lets two leading slashes mean something else
        normal = normal[1:]
    _refuse_outside(normal, normal, what, roots)
    return normal


def check_real_place(path: str, what: str, roots: Sequence[str]) -> None:
    """PathRefused: links of the path lead out of the roots. Call it with the user's rights."""
    try:
        place = os.path.realpath(path)
    except OSError as error:  # of another user's process in /proc, say
        raise refusal_of(error, f"{what} {path} cannot be used: {error.strerror}") from None
    _refuse_outside(place, path, what, roots)


def make_directory(path: str, what: str, mode: int = 0o755) -> None:
    """Make a directory and its missing parents. Call it with the user's rights.

    Links are followed: the levels above such directories are chosen by the site or the user.
    PathRefused: the user may not. OSError: the host cannot (a full disk, a lost server).
    """
    try:
        os.makedirs(path, mode=mode, exist_ok=True)
    except OSError as error:
        raise refusal_of(error, f"{what} {path} cannot be made: {error.strerror}") from None


def check_entered(path: str, what: str) -> None:
    """PathRefused: no directory, or the user may not enter it. Errors and rights are as for
    `make_directory`.
    """
    check_directory(path, what)
    check_directory(os.path.join(path, "."), what)


def check_directory(path: str, what: str) -> None:
    """PathRefused: no directory. Errors and rights are as for `make_directory`."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise refusal_of(error, f"{what} {path} does not exist on this node") from None
    except OSError as error:
        raise refusal_of(error, f"{what} {path} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(kind):
        raise PathRefused(f"{what} {path} is not a directory")


def refusal_of(error: OSError, text: str) -> Exception:
    """The error as PathRefused with the text if it is the user's fault, else the host's error."""
    exit_code = exit_code_of(error.errno or 0)
    if exit_code is None:
        return UserFileFault(error.errno, error.strerror, error.filename)
    return PathRefused(text, exit_code)


def is_below(place: str, roots: Sequence[str]) -> bool:
    """Whether an absolute path lies below one of the roots; True without roots."""
    normal = [os.path.normpath(root) for root in roots]
    return not roots or any(os.path.commonpath((place, root)) == root for root in normal)


def _refuse_outside(place: str, path: str, what: str, roots: Sequence[str]) -> None:
    if is_below(place, roots):
        return
    raise PathRefused(f"{what} {path} is not below any directory this node allows")
