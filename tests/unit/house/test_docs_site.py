"""The documentation as a site: navigation, links and anchors, generated pages and pictures."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support import diagrams, reference_pages
from support.plain_english import ORIGIN_LINE
from support.reference_pages import GENERATED, ROOT

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))
MOST_WORDS = 1_500
LOOKED_UP = {  # nobody reads these from top to bottom
    "reference/json.md",
    "reference/glossary.md",
    "reference/profiler-files.md",
    "policies/settings.md",
}
MEASURED = ("policies/reproduction/", "reliability.md")  # their tables of figures are looked up


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def in_navigation() -> Iterator[str]:
    """The pages of mkdocs.yml, in order."""

    def pages(entries: object) -> Iterator[str]:
        if isinstance(entries, str):
            yield entries
        elif isinstance(entries, dict):
            for one in entries.values():
                yield from pages(one)
        elif isinstance(entries, list):
            for one in entries:
                yield from pages(one)

    yield from pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(in_navigation()) == [name_of(page) for page in PAGES]


def anchors_of(page: Path) -> set[str]:
    """The anchors that MkDocs, and other readers of Markdown, give the headings of a page."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"(?m)^#+ (.+?) *#*$", text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        count = found[slug] = found.get(slug, -1) + 1
        names |= {slug} if not count else {f"{slug}_{count}", f"{slug}-{count}"}
    return names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_anchor_exists(page: Path) -> None:
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        aimed = (page.parent / target).resolve() if target else page
        if aimed.suffix == ".md" and anchor not in anchors_of(aimed):
            broken.append(f"{target}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_short_enough_to_be_read(page: Path) -> None:
    text = page.read_text()
    if name_of(page) in LOOKED_UP or GENERATED.split(" by ")[0] in text:
        return
    if name_of(page).startswith(MEASURED):
        text = re.sub(r"(?m)^\|.*$", "", ORIGIN_LINE.sub("", text))
    assert len(text.split()) <= MOST_WORDS


@pytest.mark.parametrize("name", ["commands", "configuration", "reasons", "events", "api"])
def test_generated_pages_are_fresh(name: str) -> None:
    page = f"{name}.md"
    fresh = reference_pages.all_pages()[page]
    assert (reference_pages.FOLDER / page).read_text() == fresh, "run: make reference"


def test_every_setting_and_every_reason_has_a_meaning() -> None:
    lines = [
        line
        for page in ("configuration.md", "reasons.md")
        for line in (reference_pages.FOLDER / page).read_text().splitlines()
        if line.startswith("| `")
    ]
    assert len(lines) > 150
    assert [line for line in lines if re.search(r"\| *\|$", line)] == []


def test_pictures_are_fresh_and_each_has_its_page() -> None:
    fresh = diagrams.all_pictures()
    assert len(fresh) >= 8
    for name, svg in fresh.items():
        assert (diagrams.FOLDER / name).read_text() == svg, "run: make reference"
        assert f"({name})" in (diagrams.FOLDER / name).with_suffix(".md").read_text()


def test_a_picture_names_the_line_that_it_does_not_understand() -> None:
    with pytest.raises(ValueError, match=r"line 2: circle is no element"):
        diagrams.Picture("title x\ncircle 1 2\n")


def blocks() -> Iterator[tuple[str, str, str]]:
    """Fenced blocks that some program can read: page, language, text."""
    for page in PAGES:
        for language, text in re.findall(r"(?ms)^```(\w+)\n(.*?)^```", page.read_text()):
            if language in ("json", "toml", "yaml", "python"):
                yield name_of(page), language, text


@pytest.mark.parametrize(("page", "language", "text"), list(blocks()))
def test_a_block_of_code_is_what_it_says(page: str, language: str, text: str) -> None:
    if language == "json":
        for line in text.split("\n\n") if "\n{" in text else [text]:
            json.loads(line)
    elif language == "toml":
        tomllib.loads(text)
    elif language == "yaml":
        yaml.safe_load(text)
    else:
        compile(text, page, "exec")
