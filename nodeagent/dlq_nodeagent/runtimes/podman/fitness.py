"""Whether an image's files leave room for the mounts of every container: /run, /tmp, /proc and the
like.

The OCI runtimes mount these inside the image and follow its links, within it. A link into /proc,
say, makes them fail, in words that blame the node. Such an image is refused as its user's mistake.
"""

import os
import stat
from pathlib import Path

_OURS = ("/run", "/tmp", "/var/tmp")  # in memory, for the job
_KERNELS = ("/proc", "/sys", "/dev")
_MOST_LINKS = 40


def unfit(root: Path) -> str:
    """The reason why an image with these files can never start; empty: none is seen."""
    for path in _KERNELS:
        mode = _mode(root, path)
        if mode is not None and not stat.S_ISDIR(mode):
            return f"its {path} is not a directory"
    for path in _OURS:
        place = _resolved(root, path)
        if place is None:
            return f"its {path} is a link that never ends"
        if (
            place == "/"
            or place.startswith(tuple(f"{it}/" for it in _KERNELS))
            or place in _KERNELS
        ):
            return f"its {path} is a link to {place if place == '/' else '/' + place.split('/')[1]}"
        mode = _mode(root, place)
        if mode is not None and not stat.S_ISDIR(mode):
            return f"its {path} is not a directory"
    return ""


def _resolved(root: Path, path: str) -> str | None:
    """The target of a path of the image, links followed within it; None: round and round."""
    done: list[str] = []
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]
            continue
        here = "/" + "/".join([*done, part])
        mode = _mode(root, here)
        if mode is None or not stat.S_ISLNK(mode):
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        target = os.readlink(f"{root}{here}")
        if target.startswith("/"):
            done = []
        todo += target.split("/")[::-1]
    return "/" + "/".join(done)


def _mode(root: Path, path: str) -> int | None:
    """The mode of a path whose directories are no links; None: nothing."""
    try:
        return os.lstat(f"{root}{path}").st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
