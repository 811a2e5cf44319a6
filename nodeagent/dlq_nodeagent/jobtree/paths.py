"""Which directories of a job this node accepts, and how they are made: as the user."""

import os
from collections.abc import Sequence

from dlq_common.names import check_absolute_path


class PathRefused(ValueError):
    """The path cannot be used on this node; the text is for the user."""


def checked_path(path: str, what: str, roots: Sequence[str]) -> str:
    """The path without doubled slashes and dots. PathRefused for anything but an absolute path
    without `..` below one of `roots` (any, if there are none). Text only: nothing is opened.
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
    """Refuse a path whose links lead out of the roots. Call it with the user's rights."""
    _refuse_outside(os.path.realpath(path), path, what, roots)


def make_directory(path: str, what: str) -> None:
    """Make a directory and its parents where they are missing. Call it with the user's rights."""
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
    except OSError as error:
        raise PathRefused(f"{what} {path} cannot be made: {error.strerror}") from None


def _refuse_outside(place: str, path: str, what: str, roots: Sequence[str]) -> None:
    if not roots:
        return
    for root in roots:
        if os.path.commonpath((place, os.path.normpath(root))) == os.path.normpath(root):
            return
    raise PathRefused(f"{what} {path} is not below any directory this node allows")
