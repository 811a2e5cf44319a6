"""Pages and docstrings name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("benchmarks", "broker", "cli", "client", "common", "docs", "examples", "master",
         "nodeagent", "profiler", "proto", "simulator", "web", "notify", "tests",
         "deploy")  # fmt: skip
FILES = [path.as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.*")]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MODULES = [
    path
    for room in (
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
    for path in sorted((ROOT / room).rglob("*.py"))
]
# The first column of the dictionary has the names of before.
OLD_NAMES = {"docs/internals/adr/0021-one-dictionary.md"}
PYTHON = re.compile(r"\b([a-z_]\w*(?:/\w+)*\.py)\b")
# Files that a user, or the installation of the stand-ins, makes.
MADE = {"first/train.py", "lib/__main__.py"}


def missing(text: str) -> list[str]:
    """Python files that a text names by a path, and that no room has."""
    named = {name for name in PYTHON.findall(text) if "/" in name} - MADE
    return sorted(name for name in named if not any(file.endswith(f"/{name}") for file in FILES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_are_there(page: Path) -> None:
    if str(page.relative_to(ROOT)) not in OLD_NAMES:
        assert missing(page.read_text()) == []


def test_docstrings_and_comments_name_files_that_are_there() -> None:
    found = {str(path.relative_to(ROOT)): missing(path.read_text()) for path in MODULES}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_dictionary_names_modules_that_are_there() -> None:
    page = (ROOT / "docs/internals/adr/0021-one-dictionary.md").read_text()
    now = re.findall(r"(?m)^\| [^|]+ \| ([^|]+) \|", page)
    named = {name for cell in now for name in re.findall(r"`([a-z_]+/[a-z_/]+)`", cell)}
    there = {file.removesuffix(".py") for file in FILES} | {
        path.parent.as_posix() for path in MODULES
    }
    assert sorted(n for n in named if not any(one.endswith(f"/{n}") for one in there)) == []
