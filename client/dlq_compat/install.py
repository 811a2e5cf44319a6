"""Copies the stand-ins out of the wheel, to where jobs and their containers may read them.

    DIRECTORY/bin/srun ...      sh: finds a Python and runs ...
    DIRECTORY/bin/sbatch ...    the same, or the compiled front that asks the user's server (front/)
    DIRECTORY/lib/slow/sbatch   then the sh program, for where there is no server
    DIRECTORY/lib/__main__.py   ... the package beside it
    DIRECTORY/lib/dlq_compat/
    DIRECTORY/lib/dlq-cli       where the `dlq` of this installation is

Jobs of other users cannot pass through the directories of every installation, and a container sees
none of them.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Optional

from dlq_compat.delegate import CLI_FILE
from dlq_compat.main import OF_STEPS, PROGRAMS

_WRAPPER = """\
#!/bin/sh
# dlq's stand-in for Slurm's {name}.
DLQ_SLURM_BIN=$(cd "$(dirname "$0")" && pwd)
# Functions that a bash exports: sh drops variables of such names.
functions=$(grep -z '^BASH_FUNC_' "/proc/$$/environ" 2>/dev/null | tr '\\000' '\\001')
[ "${{#functions}}" -eq 0 ] || [ "${{#functions}}" -gt 100000 ] || export DLQ_FUNCTIONS="$functions"
for python in {python} python3 /usr/bin/python3 python; do
    if command -v "$python" >/dev/null 2>&1; then
        exec "$python" -ISB "$DLQ_SLURM_BIN/{lib}" {name} "$@"
    fi
done
echo "{name}: dlq's stand-ins for Slurm's programs need a python3 in PATH" >&2
exit 127
"""
_MAIN = """\
import sys

from dlq_compat.main import main

sys.exit(main())
"""


FRONT = Path(__file__).parent / "front" / "dlq-front"
"""The compiled front, where a C compiler was there when dlq was installed."""
_FRONT_COPY = "dlq-front"
_STEPS_COPY = "dlq-steps"


def install(directory: Path, front: Optional[Path] = None, *, steps: Optional[Path] = None) -> Path:
    """Write everything below `directory` and return its `bin`, which belongs first into PATH.

    `front`: the compiled front, for people's hosts. `steps`: the compiled programs of steps, for
    the nodes that run jobs. May be repeated, also while jobs use it: each file is replaced in one
    step. All users may read it. OSError when it cannot be written.
    """
    lib = directory / "lib"
    for made in (directory, directory / "bin", lib, lib / "dlq_compat", lib / "slow"):
        made.mkdir(exist_ok=True)
        made.chmod(0o755)
    package = Path(__file__).parent
    for source in sorted(package.glob("*.py")):
        _put(directory / "lib" / "dlq_compat" / source.name, source.read_bytes(), 0o644)
    _put(directory / "lib" / "__main__.py", _MAIN.encode(), 0o644)
    _put(directory / "lib" / CLI_FILE, f"{_own_cli()}\n".encode(), 0o644)
    compiled = {name: _FRONT_COPY for name in PROGRAMS if front}
    compiled |= {name: _STEPS_COPY for name in OF_STEPS if steps}
    for program, copy in ((front, _FRONT_COPY), (steps, _STEPS_COPY)):
        if program is not None:
            _put(lib / copy, program.read_bytes(), 0o755)
    for name in dict.fromkeys((*PROGRAMS, *(OF_STEPS if steps else ()))):
        if name not in compiled:
            _put(directory / "bin" / name, _wrapper(name, "../lib"), 0o755)
        else:
            _put(lib / "slow" / name, _wrapper(name, ".."), 0o755)
            _link(lib / compiled[name], directory / "bin" / name)
    return directory / "bin"


def _wrapper(name: str, lib: str) -> bytes:
    python = shlex.quote(os.path.realpath(sys.executable))
    return _WRAPPER.format(name=name, python=python, lib=lib).encode()


def _link(source: Path, path: Path) -> None:
    """One file under many names: each name is a command."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.hardlink_to(source)
    except OSError:
        _put(path, source.read_bytes(), 0o755)
    else:
        draft.replace(path)
        draft.unlink(missing_ok=True)  # both were one file before: rename did nothing


def _own_cli() -> Path:
    return Path(sys.executable).absolute().parent / "dlq"


def _put(path: Path, content: bytes, mode: int) -> None:
    if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
        path.chmod(mode)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("xb") as file:
        file.write(content)
    draft.chmod(mode)
    draft.replace(path)
