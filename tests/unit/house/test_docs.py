"""The documents stay true: links lead somewhere, targets exist, decisions are listed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "deploy/README.md"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"(?m)^([a-z0-9-]+):", MAKEFILE))


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            yield target


def code_in(page: Path) -> str:
    """The code of a page: fenced blocks without their comments, and inline code."""
    text = page.read_text()
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```", text)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
    return re.sub(r"(?m)\s#.*$", "", "\n".join([*blocks, *inline]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    broken = [target for target in links(page) if not (page.parent / target).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    assert set(re.findall(r"\bmake ([a-z0-9]+)\b", code_in(page))) <= TARGETS


def test_ci_runs_targets_that_exist() -> None:
    run = re.findall(r"(?m)^run(?:_tests)? \S+ .* make ([a-z0-9]+)", (ROOT / ".ci/run").read_text())
    assert {"check", "test", "demo", "e2e"} <= set(run) <= TARGETS


def test_the_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_every_target_says_what_it_does() -> None:
    phony = set(re.findall(r"(?m)^\.PHONY: ([a-z0-9-]+)", MAKEFILE))
    explained = set(re.findall(r"(?m)^([a-z0-9-]+):.*## \S", MAKEFILE))
    assert phony == explained


def test_every_file_that_make_runs_exists() -> None:
    run = re.findall(r"(?m)^\t.*\$\(PY\) ([a-z_/]+\.py)", MAKEFILE)
    tested = re.findall(r"(?m)^\t.*pytest .*\b(tests/[a-z0-9_]+)", MAKEFILE)
    assert {"examples/demo/run.py", "proto/generate.py", "tests/e2e"} <= {*run, *tested}
    assert [path for path in [*run, *tested] if not (ROOT / path).exists()] == []


def test_every_decision_is_in_the_list_and_has_its_four_parts() -> None:
    index = (ROOT / "docs/internals/adr/README.md").read_text()
    pages = sorted((ROOT / "docs/internals/adr").glob("[0-9]*.md"))
    assert pages
    for page in pages:
        assert f"({page.name})" in index
        parts = ["**Context.**", "**Decision.**", "**Alternatives refused.**", "**Price.**"]
        assert [part for part in parts if part not in page.read_text()] == [], page.name


def test_ci_ends_within_forty_minutes() -> None:
    text = (ROOT / ".ci/run").read_text()
    (most,) = re.findall(r"(?m)^MOST_S=\$\(\((\d+) \* 60\)\)", text)
    assert int(most) < 40
    assert len(re.findall(r"timeout .*limit < left \? limit : left", text)) == 1
    assert text.count("timeout ") == 3  # the other two look for a browser and for promtool
    (more,) = re.findall(r"(?m)^WORLD_S=\$\(\((\d+) \* 60\)\)", text)
    assert int(more) < 10


def test_the_long_form_of_ci_plays_a_thousand_worlds_that_reach_every_state() -> None:
    text = (ROOT / ".ci/run").read_text()
    assert re.search(r"= short \] \|\| run .* make world SEEDS=1000 STATES=1\n", text)
    assert ".ci/run long" in (ROOT / "CONTRIBUTING.md").read_text()


def test_ci_says_that_no_pair_was_tested_or_fails_where_a_test_of_one_is_skipped() -> None:
    """They were skipped, and all was green."""
    text = (ROOT / ".ci/run").read_text()
    assert text.index("export DLQ_NEED_POSTGRES=1") < text.index("make test\n")
    assert "NOT RUN: two masters" in text
    assert re.findall(r"(?m)^ *missed(\+?)=", text) == ["", "+", "+", "+"]
    for path in (".github/workflows/ci.yml", ".gitlab-ci.yml"):
        hosted = (ROOT / path).read_text()
        assert "install -y -q postgresql" in hosted
        assert 'DLQ_NEED_POSTGRES: "1"' in hosted


def test_no_glossary_word_is_explained_twice() -> None:
    words = re.findall(r"(?m)^\| \*\*(.+?)\*\*", (ROOT / "docs/reference/glossary.md").read_text())
    assert len(words) > 30
    assert len(words) == len(set(words))
