"""The commands that the documents show: what a person can type is one line here, with its page."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "deploy/README.md",
    *sorted((ROOT / "examples").rglob("*.md")),
]


def blocks(page: Path) -> Iterator[str]:
    """The texts of a page's fenced blocks."""
    for _, text in re.findall(r"(?ms)^( *)```[^\n]*\n(.*?)^\1```", page.read_text()):
        yield text


def shown(page: Path, programs: str) -> Iterator[str]:
    """Lines of a page that begin with one of `programs` (a pattern), after a prompt or `sudo` too.

    A line that ends with a backslash is one with the next.
    """
    for text in blocks(page):
        whole = re.sub(r"\\\n\s*", " ", text)
        yield from re.findall(rf"(?m)^ *(?:\$ )?(?:sudo )?((?:{programs})(?: .*)?)$", whole)
