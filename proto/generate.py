"""Generate proto/gen from proto/dlq/v1, or check that it is what the sources say.

    generate.py            write proto/gen
    generate.py --check    write nothing; exit 1 when proto/gen differs from the sources
    generate.py --freeze   write v1.binpb, the image against which breaking changes are found

Freezing accepts every change since the last freeze: do it with a release, in a commit of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
GENERATED = ROOT / "gen"
FROZEN = ROOT / "v1.binpb"
# `python -m` and editors leave these beside the generated files.
IGNORED = ("__pycache__",)


def main() -> int:
    """Do what the command line says; the exit status."""
    parser = argparse.ArgumentParser(description="generated code of the wire")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--check", action="store_true", help="compare, write nothing")
    chosen.add_argument("--freeze", action="store_true", help="write v1.binpb")
    arguments = parser.parse_args()
    if arguments.freeze:
        FROZEN.write_bytes(described(with_comments=False).SerializeToString(deterministic=True))
        return 0
    wanted = generated()
    if arguments.check:
        return _report(list(differences(wanted, GENERATED)))
    write(wanted, GENERATED)
    return 0


def sources() -> list[str]:
    """Paths of the .proto files, relative to this directory, in order."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "dlq").rglob("*.proto"))


def described(*, with_comments: bool) -> FileDescriptorSet:
    """The sources as protoc understands them, without what they import from elsewhere."""
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "image"
        more = ["--include_source_info"] if with_comments else []
        _protoc(f"--descriptor_set_out={image}", *more, *sources())
        return FileDescriptorSet.FromString(image.read_bytes())


def generated() -> dict[str, bytes]:
    """Everything that belongs into proto/gen: path below it -> content."""
    with_services = [file.name for file in described(with_comments=False).file if file.service]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        _protoc(f"--python_out={out}", f"--mypy_out=quiet:{out}", *sources())
        _protoc(f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", *with_services)
        made = dict(_contents(out))
    for directory in {Path(name).parent for name in made}:
        made[str(directory / "__init__.py")] = b""
    for path in (ROOT / "dlq").glob("*.py*"):  # the front of the package, written by hand
        made[str(path.relative_to(ROOT))] = path.read_bytes()
    made["dlq/py.typed"] = b""
    return made


def differences(wanted: dict[str, bytes], directory: Path) -> Iterator[str]:
    """One line for each file that is missing, differs, or should not be there."""
    found = dict(_contents(directory))
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            yield f"missing: {name}"
        elif name not in wanted:
            yield f"not generated: {name}"
        elif wanted[name] != found[name]:
            yield f"differs: {name}"


def write(wanted: dict[str, bytes], directory: Path) -> None:
    """Make the directory hold exactly these files."""
    for name in dict(_contents(directory)).keys() - wanted.keys():
        (directory / name).unlink()
    for name, content in wanted.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _contents(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(part in IGNORED for part in path.parts):
            yield str(path.relative_to(directory)), path.read_bytes()


def _protoc(*arguments: str) -> None:
    # The plugins of mypy-protobuf lie beside this interpreter, which need not be on PATH.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    well_known = str(files("grpc_tools") / "_proto")
    status = protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", *arguments])
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")


def _report(problems: list[str]) -> int:
    for problem in problems:
        print(f"proto/gen: {problem}")
    if problems:
        print("proto/gen does not follow from proto/dlq: run `make proto`")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
