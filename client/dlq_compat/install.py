"""Copies the stand-ins out of the wheel, to where jobs and their containers may read them.

    DIRECTORY/bin/srun ...      sh: finds a Python and runs ...
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

from dlq_compat.delegate import CLI_FILE
from dlq_compat.main import PROGRAMS

_WRAPPER = """\
#!/bin/sh
# dlq's stand-in for Slurm's {name}.
DLQ_SLURM_BIN=$(cd "$(dirname "$0")" && pwd)
export DLQ_SLURM_BIN
for python in {python} python3 /usr/bin/python3 python; do
    if command -v "$python" >/dev/null 2>&1; then
        exec "$python" -ISB "$DLQ_SLURM_BIN/../lib" {name} "$@"
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


def install(directory: Path) -> Path:
    """Write everything below `directory` and return its `bin`, which belongs first into PATH.

    May be repeated, also while jobs use it: each file is replaced in one step. All users may read
    it. OSError when it cannot be written.
    """
    for made in (directory, directory / "bin", directory / "lib", directory / "lib" / "dlq_compat"):
        made.mkdir(exist_ok=True)
        made.chmod(0o755)
    package = Path(__file__).parent
    for source in sorted(package.glob("*.py")):
        _put(directory / "lib" / "dlq_compat" / source.name, source.read_bytes(), 0o644)
    _put(directory / "lib" / "__main__.py", _MAIN.encode(), 0o644)
    _put(directory / "lib" / CLI_FILE, f"{_own_cli()}\n".encode(), 0o644)
    python = shlex.quote(os.path.realpath(sys.executable))
    for name in PROGRAMS:
        text = _WRAPPER.format(name=name, python=python)
        _put(directory / "bin" / name, text.encode(), 0o755)
    return directory / "bin"


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
