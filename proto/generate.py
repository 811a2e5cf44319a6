"""Generate `proto/gen` from `proto/dlq/v1`; with `--check`, only say whether it would change.

Everything is generated into an empty directory first, so that files whose .proto is gone go too.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

ROOM = Path(__file__).resolve().parent
GENERATED = ROOM / "gen" / "dlq"
MARKERS = ("__init__.py", "py.typed", "v1/__init__.py")


def generate(out: Path) -> None:
    """Write messages, stubs and their types below `out`, as `dlq/v1/*_pb2*.py*`."""
    protos = sorted(str(path.relative_to(ROOM)) for path in (ROOM / "dlq" / "v1").glob("*.proto"))
    services = [path for path in protos if path.endswith("_service.proto")]
    _protoc(protos, f"--python_out={out}", f"--mypy_out=quiet:{out}")
    _protoc(services, f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}")
    for marker in MARKERS:
        (out / "dlq" / marker).touch()


def differences(fresh: Path, kept: Path) -> Iterator[str]:
    """The files that differ between two trees, relative to them."""
    names = {_relative(path, tree) for tree in (fresh, kept) for path in _files(tree)}
    for name in sorted(names):
        one, other = fresh / name, kept / name
        if not (one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)):
            yield name


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = Path(scratch) / "dlq"
        changed = list(differences(fresh, GENERATED))
        if "--check" in sys.argv[1:]:
            for name in changed:
                print(f"proto/gen/dlq/{name} does not follow from proto/dlq: run `make proto`")
            return 1 if changed else 0
        for name in changed:
            _update(fresh / name, GENERATED / name)
    return 0


def _protoc(protos: list[str], *outputs: str) -> None:
    # The mypy plug-ins are looked up on PATH, and stand beside this interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    well_known = resources.files("grpc_tools") / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOM}", f"-I{well_known}"]
    subprocess.run(
        [*command, *outputs, *protos], cwd=ROOM, env={**os.environ, "PATH": path}, check=True
    )


def _update(fresh: Path, kept: Path) -> None:
    if not fresh.exists():
        kept.unlink()
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(fresh, kept)


def _files(tree: Path) -> Iterator[Path]:
    return (
        path for path in tree.rglob("*") if path.is_file() and path.parent.name != "__pycache__"
    )


def _relative(path: Path, tree: Path) -> str:
    return str(path.relative_to(tree))


if __name__ == "__main__":
    sys.exit(main())
