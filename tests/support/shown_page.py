"""What a page shows: its words, its tables, its links and its fields, without its markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_SPACE = frozenset({"p", "li", "dt", "dd", "h1", "h2", "h3", "td", "th", "tr", "label", "code"})


@dataclass
class ShownPage:
    """A page, read."""

    words: str
    tables: list[list[list[str]]] = field(default_factory=list)  # rows of cells, heads first
    links: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def column(self, heading: str) -> list[str]:
        """The cells below this heading, in the first table that has it."""
        table = next(one for one in self.tables if heading in one[0])
        place = table[0].index(heading)
        return [row[place] for row in table[1:]]

    def having(self, attribute: str) -> list[dict[str, str]]:
        """The elements with this attribute."""
        return [found for _, found in self.tags if attribute in found]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = ShownPage("")
        self._texts: list[str] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.found.tags.append((tag, given))
        if tag in _SPACE:
            self._texts.append(" ")
        if tag == "a":
            self.found.links.append(given.get("href", ""))
        if tag == "table":
            self.found.tables.append([])
        if tag == "tr":
            self.found.tables[-1].append([])
        if tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.found.tables[-1][-1].append(_plain(self._cell))
            self._cell = None
        if tag in _SPACE:
            self._texts.append(" ")

    def handle_data(self, data: str) -> None:
        self._texts.append(data)
        if self._cell is not None:
            self._cell.append(data)

    def read(self, text: str) -> ShownPage:
        self.feed(text)
        self.found.words = _plain(self._texts)
        return self.found


def shown_page(text: str) -> ShownPage:
    """The page of this HTML."""
    return _Reader().read(text)


def _plain(texts: list[str]) -> str:
    return " ".join("".join(texts).split())
