"""Pages are plain English: a named subject, a verb, one idea a sentence, 25 words at most."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.plain_english import is_hard, sentences
from support.reference_pages import GENERATED, ROOT

# How many hard sentences a page still has. A page may only get better; at none it leaves the table.
NOT_YET = {
    "docs/policies/reproduction/chronus.md": 1,
}


def pages() -> Iterator[Path]:
    """Pages that people write."""
    found = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    for room in ("client", "deploy", "examples", "nodeagent", "profiler"):
        found += (ROOT / room).rglob("*.md")
    for page in sorted(found):
        generated = GENERATED.split(" by ")[0] in page.read_text()
        if not generated and page.name != "CHANGELOG.md":
            yield page


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", list(pages()), ids=name_of)
def test_a_page_is_plain_english(page: Path) -> None:
    hard = [one for one in sentences(page.read_text()) if is_hard(one)]
    allowed = NOT_YET.get(name_of(page), 0)
    assert len(hard) <= allowed, hard
    assert allowed == 0 or len(hard) == allowed, f"better: now {len(hard)} in NOT_YET"


def test_the_table_names_pages_that_exist() -> None:
    assert {*NOT_YET} <= {name_of(page) for page in pages()}


@pytest.mark.parametrize(
    ("sentence", "hard"),
    [
        ("Evicts jobs from reclaimed nodes.", False),
        ("What is asked back goes first.", True),
        ("What does a job get?", False),
        ("Who is not promised a deadline runs as best effort.", True),
        ("Jobs are listed, whoever asks.", True),
        ("A " + "very " * 25 + "long sentence.", True),
    ],
)
def test_it_tells_a_hard_sentence(sentence: str, hard: bool) -> None:
    assert is_hard(sentence) is hard
