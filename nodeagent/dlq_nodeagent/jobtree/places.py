"""Makes and checks the directories of a job's checkpoints, where other users may write nearby.

Call all functions with the submitter's rights. They go from the base down by descriptors and follow
no link. The site or the user chose the levels above the base. Below the base every level belongs to
the submitter, and no other user may write to it. So a checked path stays right, and may be handed
on.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from dlq_nodeagent.jobtree.files import opened
from dlq_nodeagent.jobtree.paths import make_directory, refusal_of

PRIVATE = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# More entries than this of one checkpoint are not looked at.
_MOST_ENTRIES = 10_000
_OWN_LEVELS = 2  # JOB/ATTEMPT
_REMEDY = "remove or rename it, or name a directory of your own with --checkpoint-dir"


class PlaceRefused(ValueError):
    """A directory or a file is not the submitter's alone. The text names a remedy."""


@dataclass(frozen=True, slots=True)
class PlaceOnDisk:
    """The levels of one attempt below a base; none if the script has its own directory."""

    base: str
    below: tuple[str, ...] = ()

    @classmethod
    def of(cls, directory: str, base: str, *, whole: bool) -> "PlaceOnDisk":
        """The place of a normal path.

        Without a base above it (an old master names none) its last two levels are the job's. With
        `whole` the user has named all of it, and no level is the job's.
        """
        if whole:
            return cls(directory)
        parts = _parts_below(directory, base)
        if parts:
            return cls(base, parts)
        parts = tuple(directory.strip("/").split("/"))
        above = "/" + "/".join(parts[:-_OWN_LEVELS])
        return cls(above, parts[-_OWN_LEVELS:])


def make_place(place: PlaceOnDisk, uid: int, mode: int = PRIVATE) -> None:
    """Make the missing levels and check all. PlaceRefused, or errors as for `make_directory`."""
    what = "the checkpoint directory"
    make_directory(place.base, what, mode)
    with _Walk(place.base, uid) as walk:
        for name in place.below:
            try:
                walk.make(name, mode)
                walk.enter(name)
            except OSError as error:
                path = os.path.join(walk.path, name)
                raise refusal_of(error, f"{what} {path} cannot be made: {error.strerror}") from None
            walk.check_unwritable()


def is_theirs(place: PlaceOnDisk, uid: int) -> bool:
    """Whether all levels are still the submitter's alone, so that their files count as saved."""
    try:
        with _Walk(place.base, uid) as walk:
            for name in place.below:
                walk.enter(name)
                walk.check_unwritable()
    except (PlaceRefused, OSError):
        return False
    return True


def check_saved(path: str, base: str, uid: int) -> None:
    """PlaceRefused: another user may have made or changed the checkpoint. Also raises OSError.

    Each level below the base and the checkpoint's own entries must be the submitter's, and links
    must stay inside the base. It may be gone, as long as only the submitter can put another in its
    place.
    """
    parts = _parts_below(path, base)
    with _Walk(base, uid) as walk:
        for number, name in enumerate(parts):
            try:
                walk.check(name)
                if number + 1 == len(parts) and not walk.is_directory(name):
                    return
                walk.enter(name)
            except FileNotFoundError:
                if walk.shared:
                    raise PlaceRefused(f"{path} is not on this node") from None
                return
        if parts:
            walk.check_entries()


def base_of_saved(path: str, base: str, *, levels: int) -> str:
    """The base above a checkpoint: the named one, else its ancestor so many levels up.

    A site may have moved its root since.
    """
    if _parts_below(path, base):
        return base
    for _ in range(levels):
        path = os.path.dirname(path)
    return path


class _Walk:
    """Goes down from a base, one checked level after the other."""

    def __init__(self, base: str, uid: int) -> None:
        self.path = self._base = base
        self._uid = uid
        self._trusted = {0, os.getuid(), uid}
        self._fd = -1
        self._closed = False

    def __enter__(self) -> "_Walk":
        link = os.lstat(self._base)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in self._trusted:
            raise PlaceRefused(_whose(self._base, link, "is a link"))
        self._fd = os.open(self._base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check_base(os.fstat(self._fd))
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def shared(self) -> bool:
        facts = os.fstat(self._fd)
        return facts.st_uid != self._uid or bool(facts.st_mode & _OTHERS_WRITE)

    def make(self, name: str, mode: int) -> None:
        try:
            os.mkdir(name, mode, dir_fd=self._fd)
        except FileExistsError:
            return
        if mode != PRIVATE:  # the site decides the mode, not the user's mask
            inherited = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode & stat.S_ISGID
            os.chmod(name, mode | inherited, dir_fd=self._fd)

    def check(self, name: str) -> None:
        """PlaceRefused: a file is not the submitter's, or others may write to it."""
        path, facts = self._own(name)
        self._closed = self._closed or not facts.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        if facts.st_mode & stat.S_IWOTH and not self._closed:
            raise PlaceRefused(f"{path} may be written to by everybody: chmod o-w it")

    def is_directory(self, name: str) -> bool:
        return stat.S_ISDIR(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode)

    def enter(self, name: str) -> None:
        path, _ = self._own(name)
        below = os.open(name, _WALK, dir_fd=self._fd)
        os.close(self._fd)
        self._fd, self.path = below, path
        entered = os.fstat(below)
        if entered.st_uid != self._uid:  # swapped since
            raise PlaceRefused(_whose(path, entered, "is not the submitter's"))

    def _own(self, name: str) -> tuple[str, os.stat_result]:
        facts = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        path = os.path.join(self.path, name)
        if facts.st_uid != self._uid:
            raise PlaceRefused(_whose(path, facts, "is not the submitter's"))
        if stat.S_ISLNK(facts.st_mode):
            raise PlaceRefused(_whose(path, facts, "is a link"))
        return path, facts

    def check_unwritable(self) -> None:
        facts = os.fstat(self._fd)
        if facts.st_mode & _OTHERS_WRITE:
            mode = stat.S_IMODE(facts.st_mode)
            raise PlaceRefused(
                f"{self.path} may be written to by others than its owner (mode {mode:04o}): chmod "
                "go-w it"
            )

    def check_entries(self) -> None:
        """PlaceRefused: entries are others', or links lead out of the base."""
        for name, facts in self._entries():
            path = os.path.join(self.path, name)
            if facts.st_uid != self._uid:
                raise PlaceRefused(_whose(path, facts, "is not the submitter's"))
            if stat.S_ISLNK(facts.st_mode) and not _leads_below(path, self._base):
                raise PlaceRefused(
                    f"{path} is a link that leads out of {self._base}: copy the file"
                )

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        with opened(".", at=self._fd) as below, os.scandir(below) as entries:
            for number, entry in enumerate(entries):
                if number >= _MOST_ENTRIES:
                    return
                yield entry.name, entry.stat(follow_symlinks=False)

    def _check_base(self, facts: os.stat_result) -> None:
        if facts.st_uid not in self._trusted:
            raise PlaceRefused(_whose(self._base, facts, "is neither the submitter's nor root's"))
        if facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX:
            raise PlaceRefused(
                f"{self._base}: everybody may write to it, and without a sticky bit any user may "
                "rename another's files: chmod +t it, as /tmp has it"
            )


def _parts_below(path: str, base: str) -> tuple[str, ...]:
    start = base.rstrip("/") + "/"
    if not base or not path.startswith(start):
        return ()
    return tuple(part for part in path[len(start) :].split("/") if part)


def _leads_below(path: str, base: str) -> bool:
    place, above = os.path.realpath(path), os.path.realpath(base)
    return os.path.commonpath((place, above)) == above


def _whose(path: str, facts: os.stat_result, why: str) -> str:
    return f"{path} {why}: it belongs to uid {facts.st_uid}; {_REMEDY}"
