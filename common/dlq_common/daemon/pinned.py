"""A daemon imports its own release, or nothing: never code of a newer one.

Somebody may change the package on disk while a daemon runs. Modules that were imported stay as they
are. A module that is imported later would be of the other release, and its values may mean
something else. So a daemon notes its files when it starts. An import of a file that has changed
since, or that is new, fails and says what to do.

The installer makes a directory for each release, and never meets this. `pip install --upgrade`
into the running environment does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Final

OURS: Final = (
    "dlq", "dlq_baselines", "dlq_client", "dlq_common", "dlq_master", "dlq_nodeagent", "dlq_notify",
    "dlq_profiler", "dlq_simulator", "dlq_web",
)  # fmt: skip


class PackageChanged(ImportError):
    """The file of a module is not of the release that this process runs."""


class _Pinned:
    """Comes before all other finders, and finds nothing itself."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = frozenset(packages)
        self._known = {mark for package in packages for mark in _files(package)}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that the others look. Raises PackageChanged."""
        if name.partition(".")[0] not in self._packages:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is None or found.origin is None or not found.has_location:
            return None
        if _mark(found.origin) not in self._known:
            raise PackageChanged(
                f"{found.origin} has changed since this daemon started: restart the daemon",
                name=name,
                path=found.origin,
            )
        return None


def pin(packages: Sequence[str] = OURS) -> None:
    """From now on these packages are imported as they are now. Asked twice, the first one holds."""
    if not any(isinstance(finder, _Pinned) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Pinned(packages))


def _files(package: str) -> Iterator[int]:
    """The marks of the modules of a package; nothing is imported for it."""
    spec = find_spec(package)
    places: Iterable[str] = () if spec is None else spec.submodule_search_locations or ()
    for place in places:
        for directory, _, names in os.walk(place):
            for name in names:
                if name.endswith(".py"):
                    yield _mark(f"{directory}/{name}")


def _mark(path: str) -> int:
    """Another number for another file, and for other contents."""
    told = os.stat(path)
    return hash((told.st_dev, told.st_ino, told.st_size, told.st_ctime_ns))
