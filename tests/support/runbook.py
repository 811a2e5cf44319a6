"""The commands of the administrator guide: the host, the user and the heading of each block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?ms)^```sh\n# on (?P<host>[\w-]+)(?:, as (?P<user>\w+))?\n(?P<script>.*?)^```"
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of commands. `host` "both" means every host of the page."""

    section: str
    host: str
    user: str
    script: str


def read_blocks(page: Path) -> list[Block]:
    """Every block that begins with `# on HOST` or `# on HOST, as USER`, in order."""
    text = page.read_text()
    headings = [(found.start(), found[1]) for found in re.finditer(r"(?m)^#+ (.+)$", _masked(text))]
    return [
        Block(
            section=[title for at, title in headings if at < found.start()][-1],
            host=found["host"],
            user=found["user"] or "root",
            script=found["script"],
        )
        for found in _BLOCK.finditer(text)
    ]


class Runbook:
    """The blocks of the pages of a folder, and those used so far. In the end it must be all."""

    def __init__(self, folder: Path) -> None:
        self.blocks = [block for page in sorted(folder.glob("*.md")) for block in read_blocks(page)]
        self.used: set[Block] = set()

    def take(self, section: str, at: int = 0) -> Block:
        """A block of a section, by its number there from 0; AssertionError when there is none."""
        found = [block for block in self.blocks if block.section == section]
        assert len(found) > at, f"the runbook has no block {at} in {section!r}"
        self.used.add(found[at])
        return found[at]

    def unused(self) -> list[Block]:
        """Blocks that nobody has taken."""
        return [block for block in self.blocks if block not in self.used]


def _masked(text: str) -> str:
    """The same text with the comments in its blocks made harmless: they are no headings."""
    return re.sub(r"(?ms)^```.*?^```", lambda block: re.sub("#", " ", block[0]), text)
