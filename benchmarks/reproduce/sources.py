"""Names a computation by the content of all that decides its result.

These are the policies, the model and the simulator as they are, and the module of the computation.
All modules count that they import from this repository. So do input files, words, and the versions
of Python and of the numeric libraries.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ROOT
from benchmarks.reproduce.case import Words

# Whole folders: a preset may load a module by its name.
DECIDE = (
    "master/dlq_baselines",
    "master/dlq_master/model",
    "master/dlq_master/policy",
    "simulator/dlq_simulator",
)
PACKAGES = {
    "benchmarks": ROOT / "benchmarks",
    "support": ROOT / "tests" / "support",
    "dlq_baselines": ROOT / "master" / "dlq_baselines",
    "dlq_common": ROOT / "common" / "dlq_common",
    "dlq_master": ROOT / "master" / "dlq_master",
    "dlq_simulator": ROOT / "simulator" / "dlq_simulator",
}
LIBRARIES = ("numpy", "scipy")
_IMPORT = re.compile(
    r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n]+)|import ([\w.]+))", re.MULTILINE
)


class Key(NamedTuple):
    """`what` is asked, and `how` it is computed: equal keys have equal results."""

    what: str
    how: str


def key(run: Callable[..., Any], words: Words, inputs: Iterable[str] = ()) -> Key:
    """The key of one part."""
    asked = json.dumps([run.__module__, run.__qualname__, words], sort_keys=True)
    told = [sources_digest(run.__module__), versions(), *map(content_digest, sorted(inputs))]
    return Key(short_digest(asked), short_digest("\n".join(told)))


@cache
def sources_digest(module: str) -> str:
    """Of every source that decides what a function of this module computes."""
    told = [f"{path.relative_to(ROOT)} {_digest(path.read_bytes())}" for path in files_of(module)]
    return short_digest("\n".join(told))


@cache
def files_of(module: str) -> tuple[Path, ...]:
    """These sources: the module, what it imports, and the folders of `DECIDE`."""
    files = {file_of(module), *deciding_files()}
    left = list(files)
    while left:
        found = set(imported(left.pop())) - files
        files |= found
        left += found
    return tuple(sorted(files))


def changed_since(modules: Iterable[str], at_s: float) -> list[Path]:
    """The sources of these modules that were written after an instant, or are gone."""
    files = {path for module in modules for path in files_of(module)}
    return [path for path in files if not path.exists() or path.stat().st_mtime > at_s]


@cache
def content_digest(file: str) -> str:
    """Of one input; FileNotFoundError where it is not there."""
    return _digest((ROOT / file).read_bytes())


def forget() -> None:
    """The next key reads all files again."""
    sources_digest.cache_clear()
    files_of.cache_clear()
    content_digest.cache_clear()


@cache
def versions() -> str:
    """Python, and the libraries that a figure may depend on."""
    told = [f"python {sys.version_info[0]}.{sys.version_info[1]}"]
    return ", ".join([*told, *(f"{name} {metadata.version(name)}" for name in LIBRARIES)])


def deciding_files() -> Iterator[Path]:
    """Everything in the folders of `DECIDE`."""
    for folder in DECIDE:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield path


def imported(path: Path) -> Iterator[Path]:
    """The files of this repository that a module imports, anywhere in it."""
    if path.suffix != ".py":
        return
    for module, names, plain in _IMPORT.findall(path.read_text()):
        dotted = module or plain
        parts = dotted.split(".")
        for end in range(1, len(parts) + 1):
            yield from _files(".".join(parts[:end]))
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            yield from _files(f"{dotted}.{name}")


def file_of(module: str) -> Path:
    """The file of a loaded module: one of a test may lie anywhere below the root."""
    found = list(_files(module))
    return found[0] if found else Path(sys.modules[module].__file__ or "")


def short_digest(text: str) -> str:
    """Of a text: enough digits to name a file."""
    return _digest(text.encode())[:24]


def _files(module: str) -> Iterator[Path]:
    """Its file, if it is a module of this repository."""
    package, *rest = module.split(".")
    if package in PACKAGES:
        place = PACKAGES[package].joinpath(*rest)
        for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if path.is_file():
                yield path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
