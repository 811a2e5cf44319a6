"""The environment that makes a program record itself; nothing of the user's is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

LIBRARIES = Path(__file__).parent / "lib"
HOOK = Path(__file__).parent / "hook"
PRELOAD = "libdlqprof.so"
NCCL_PLUGIN = "libnccl-profiler-dlq.so"
DIRECTORY = "DLQ_PROF_DIR"


class Parts(NamedTuple):
    """The preloaded library, NCCL's plugin, and the directory of the Python hook."""

    preload: Path
    nccl_plugin: Path | None = None
    hook: Path | None = None


def built(libraries: Path = LIBRARIES, hook: Path = HOOK) -> Parts | None:
    """The parts built here; None without a compiler's work."""
    preload, plugin = libraries / PRELOAD, libraries / NCCL_PLUGIN
    if not preload.is_file():
        return None
    return Parts(preload, plugin if plugin.is_file() else None, hook if hook.is_dir() else None)


def injected(environment: Mapping[str, str], directory: Path, parts: Parts) -> dict[str, str]:
    """The variables to set, for a program with this environment that records into a directory.

    Ours come first in lists that the user has filled; a plugin of NCCL that he chose stays.
    """
    found = {
        DIRECTORY: str(directory),
        "LD_PRELOAD": _before(str(parts.preload), environment.get("LD_PRELOAD", "")),
    }
    if parts.nccl_plugin is not None and not environment.get("NCCL_PROFILER_PLUGIN"):
        found["NCCL_PROFILER_PLUGIN"] = str(parts.nccl_plugin)
    if parts.hook is not None:
        found["PYTHONPATH"] = _before(str(parts.hook), environment.get("PYTHONPATH", ""))
    return found


def _before(ours: str, theirs: str) -> str:
    return f"{ours}:{theirs}" if theirs else ours
