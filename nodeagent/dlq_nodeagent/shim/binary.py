"""The place of the compiled shim, and the advice for a wheel without one."""

import os
from pathlib import Path

SHIM_NAME = "dlq-shim"
INIT_NAME = "dlq-init"
TASKS_NAME = "dlq-tasks"
OUTPUT_NAME = "dlq-output"
STEPS_NAME = "dlq-steps"
STDIN_NAME = "dlq-stdin"


class ShimMissing(Exception):
    """The agent cannot start jobs on this host; the text says how to get the shim."""


def shim_path() -> Path:
    """The build's place for the shim: beside its sources in this package."""
    return Path(__file__).with_name(SHIM_NAME)


def ensure_shim(path: Path | None = None) -> Path:
    """The shim, ready to be started; ShimMissing with the remedy otherwise. Call at agent start."""
    path = path or shim_path()
    if not path.is_file():
        raise ShimMissing(
            f"the launch shim is missing ({path}): this package was built without a C compiler.\n"
            "Install gcc or clang (for example `apt-get install gcc libc6-dev`) and install dlq "
            "again, or run `make setup` in a source tree."
        )
    if not os.access(path, os.X_OK):
        raise ShimMissing(f"the launch shim is not executable: chmod 755 {path}")
    return path


def ensure_program(name: str) -> Path:
    """A main process of ranks, by its name; ShimMissing with the remedy otherwise."""
    path = shim_path().with_name(name)
    if not path.is_file():
        raise ShimMissing(f"{name} is missing ({path}): run `make setup`, or install dlq again")
    return path


def ensure_init() -> Path:
    """Process 1 of containers; ShimMissing with the remedy otherwise."""
    path = shim_path().with_name(INIT_NAME)
    if not path.is_file():
        raise ShimMissing(
            f"the init of containers is missing ({path}): this package was built without a static "
            "C library.\nInstall gcc and libc6-dev (glibc-static elsewhere) and install dlq "
            "again, or "
            "run `make setup` in a source tree."
        )
    return path
