"""A turn imports nothing: the package may be another version by then."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlq_master

ROOT = Path(dlq_master.__file__).parent
ROOMS = ("control", "model", "policy", "rpc", "store")
LOADED = """
import json, sys
import dlq_master.serving
from dlq_master.control.loop.preload import preload
preload()
print(json.dumps(sorted(sys.modules)))
"""


def _late_imports(path: Path) -> Iterator[str]:
    """What functions of this file import when they are called."""
    text = path.read_text()
    if not re.search(r"^[ \t]+(from|import) ", text, re.MULTILINE):
        return  # most files import nothing but at their head: they need not be parsed
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules of a master that serves."""
    said = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    return {*json.loads(said.stdout)}


def test_a_master_starts_without_libraries_for_numbers_or_terminals(loaded: set[str]) -> None:
    assert not loaded & {"numpy", "scipy", "sqlite_utils", "matplotlib", "rich", "pygments"}


def test_a_master_starts_with_few_modules(loaded: set[str]) -> None:
    """Each costs a millisecond and 50 KB."""
    assert len(loaded) < 1_110


def test_whatever_a_turn_or_a_call_imports_late_is_there_when_the_master_serves(
    loaded: set[str],
) -> None:
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    late = {(file.name, name) for file in files for name in _late_imports(file)}
    late -= {("database.py", "sqlite_utils")}  # migrations are over when a master serves
    late = {
        (file, name) for file, name in late if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert late, "the test looks in the wrong place"
    assert {(file, name) for file, name in late if name not in loaded} == set()
