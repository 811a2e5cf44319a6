"""The contract in a package's `__init__` names only modules that the package has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = (
    "cli",
    "client",
    "broker",
    "common",
    "master",
    "nodeagent",
    "profiler",
    "simulator",
    "web",
    "notify",
)
# Words in backticks that are values and not modules.
VALUES = frozenset({"auto", "none"})
ROOMS = sorted(
    path
    for part in PRODUCT
    for path in (ROOT / part).glob("dlq_*/**/__init__.py")
    if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
)


def named(path: Path) -> set[str]:
    """Bare lower-case words in backticks; a name with a dot belongs to another package."""
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return set(re.findall(r"`([a-z_]+)`", told))


def there(room: Path) -> set[str]:
    modules = {path.stem for path in room.glob("*.py")}
    return modules | {path.parent.name for path in room.glob("*/__init__.py")} | {room.name}


def test_there_are_rooms() -> None:
    assert len(ROOMS) > 60


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_contract_names_modules_of_its_room(path: Path) -> None:
    missing = named(path) - there(path.parent) - VALUES
    assert not missing, f"{path.parent} has no module {', '.join(sorted(missing))}"
