"""Puts the profiler into a rank: the additions to its environment and container, and the obstacles.

Nothing here keeps a rank from starting. A rank that cannot be watched runs without us, and the
reason is noted for the evidence.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.profiling.places import Before, Places
from dlq_profiler.capabilities import why_unwatched
from dlq_profiler.injection import Parts, built, injected
from dlq_profiler.results import TrafficReason

# Of one rank. A process that sends has two files: the preloaded library's and that of NCCL's
# plugin.
TOTAL_BYTES = 512 << 20
_FILES_OF_A_TASK = 4
_OTHER_FILES = 32  # launchers, and programs that fetch data
_LEAST_RING_BYTES, _MOST_RING_BYTES = 1 << 20, 14 << 20
# The loader would say so on stderr, or would never come to be.
_NOT_INTO = frozenset(
    {TrafficReason.OTHER_MACHINE, TrafficReason.NOT_FOUND, TrafficReason.NOT_A_PROGRAM}
)

log = get_logger("nodeagent.profiling")


@dataclass(frozen=True, slots=True)
class Injection:
    """The additions to a rank; both are empty where nothing is put into it."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Injecting:
    """`parts` are asked for anew each time: they may be built while the agent runs. `copies`:
    further copies of the libraries, for users that cannot pass through the directories of this
    installation.
    """

    places: Places
    parts: Callable[[], Parts | None] = built
    copies: Path | None = None
    allowed: bool = True

    def into(
        self,
        launch: Launch,
        rights: UserRights,
        words: tuple[str, ...],
        environment: Mapping[str, str],
        cwd: str,
    ) -> Injection:
        """For a rank that starts with these words; `environment` is the one it would see, with the
        image's variables. Never raises.
        """
        limits: tuple[TrafficReason, ...] = ()
        try:
            parts = self._usable(rights) if self.allowed else None
            limits = self._limits(launch, rights, words, environment, cwd)
            if parts is not None and not _NOT_INTO.intersection(limits):
                return self._inject(launch, rights, environment, parts, limits)
            why = self._missing() if self.allowed else TrafficReason.SWITCHED_OFF
            self.places.note(launch.key, Before(False, (why, *limits) if parts is None else limits))
        except (OSError, ValueError) as error:
            log.warning("not_profiled", key=str(launch.key), error=str(error))
        return Injection()

    def _inject(
        self,
        launch: Launch,
        rights: UserRights,
        environment: Mapping[str, str],
        parts: Parts,
        limits: tuple[TrafficReason, ...],
    ) -> Injection:
        files = _OTHER_FILES + _FILES_OF_A_TASK * _tasks(launch)
        ring_bytes = min(_MOST_RING_BYTES, max(_LEAST_RING_BYTES, TOTAL_BYTES // files))
        rings = self.places.make(launch.key, rights, file_limit=files, ring_bytes=ring_bytes)
        self.places.note(launch.key, Before(True, limits))
        own = {parts.preload.parent, *([parts.hook] if parts.hook else [])}
        return Injection(
            injected(environment, rings, parts),
            (
                Mount(str(rings), str(rings), read_only=False),
                *(Mount(str(path), str(path), read_only=True) for path in sorted(own)),
            ),
        )

    def _usable(self, rights: UserRights) -> Parts | None:
        """The parts at a place from where this user's programs can load them."""
        parts = self.parts()
        if parts is None:
            return None
        # The copies come first. They stay in place when this installation is replaced, and the
        # loader would otherwise complain to the job's later processes.
        for candidate in (self._copied(parts), parts):
            if candidate is not None and _loadable(candidate, rights):
                return candidate
        return None

    def _copied(self, parts: Parts) -> Parts | None:
        if self.copies is None:
            return None
        plugin = parts.nccl_plugin and self.copies / "lib" / parts.nccl_plugin.name
        hook = parts.hook and self.copies / "hook"
        return Parts(self.copies / "lib" / parts.preload.name, plugin, hook)

    def _missing(self) -> TrafficReason:
        return TrafficReason.NO_LIBRARY if self.parts() is None else TrafficReason.UNREACHABLE

    @staticmethod
    def _limits(
        launch: Launch,
        rights: UserRights,
        words: tuple[str, ...],
        environment: Mapping[str, str],
        cwd: str,
    ) -> tuple[TrafficReason, ...]:
        with rights.taken():
            found = why_unwatched(words[0], environment, cwd=Path(cwd))
        if launch.container is not None:  # the program is the image's, of which nothing is known
            return tuple(why for why in found if why in _OF_ENVIRONMENT)
        return found


_OF_ENVIRONMENT = frozenset({TrafficReason.PLUGIN_TAKEN, TrafficReason.PLUGIN_OFF})


def _tasks(launch: Launch) -> int:
    return max(1, len(launch.gpu_indexes), launch.worker_count + launch.ps_count)


def _loadable(parts: Parts, rights: UserRights) -> bool:
    """The loader splits its list at blanks and colons, podman its volumes at colons and commas; and
    the library is mapped to be run.
    """
    if set(f"{parts.preload}{parts.hook}") & set(" :,"):
        return False
    try:
        with rights.taken():
            os.close(os.open(parts.preload, os.O_RDONLY | os.O_CLOEXEC))
        return not os.statvfs(parts.preload).f_flag & os.ST_NOEXEC
    except OSError:
        return False


def copy_parts(copies: Path, parts: Parts | None) -> None:
    """Put the libraries and the hook where all users can load them. Raises OSError.

    May be repeated while jobs use them: each file is replaced in one step.
    """
    if parts is None:
        return
    libraries = [parts.preload, *([parts.nccl_plugin] if parts.nccl_plugin else [])]
    hook = sorted(parts.hook.glob("*.py")) if parts.hook else []
    for directory in (copies, copies / "lib", copies / "hook"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
    for source in libraries:
        _put(copies / "lib" / source.name, source.read_bytes())
    for source in hook:
        _put(copies / "hook" / source.name, source.read_bytes())


def _put(path: Path, content: bytes) -> None:
    if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(0o644)
    draft.replace(path)
