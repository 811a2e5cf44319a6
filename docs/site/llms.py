"""Writes `llms.txt` into the site: each page with its title and first sentence, for programs.

It is made by each build and kept nowhere, so it is never older than the pages.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD = """\
# dlq

> A GPU cluster manager for deep-learning training: queues, leases, promises, pause and resume.

Commands have `--json`; `dlq mcp` offers them as tools.
"""
LONGEST = 200


def on_post_build(config: Any) -> None:
    """MkDocs calls it when the site is there."""
    text = llms_text(config["nav"], Path(config["docs_dir"]))
    (Path(config["site_dir"]) / "llms.txt").write_text(text, encoding="utf-8")


def llms_text(nav: list[Any], docs: Path) -> str:
    """The sections of the navigation, with a line for each page."""
    return HEAD + "".join(f"{line}\n" for line in _lines(nav, docs, 2))


def _lines(nav: list[Any], docs: Path, depth: int) -> Iterator[str]:
    for entry in nav:
        for title, target in entry.items() if isinstance(entry, dict) else [("", entry)]:
            if isinstance(target, list):
                yield ""
                yield f"{'#' * min(depth, 3)} {title}"
                yield ""
                yield from _lines(target, docs, depth + 1)
            else:
                yield _page(title, target, (docs / target).read_text(encoding="utf-8"))


def _page(title: str, target: str, text: str) -> str:
    heading = re.search(r"(?m)^# (.+)$", text)
    link = target.removesuffix(".md") + ".html"
    about = _first_words(text)
    return f"- [{title or (heading[1] if heading else target)}]({link})" + (
        f": {about}" if about else ""
    )


def _first_words(text: str) -> str:
    """The first sentence of the first paragraph."""
    body = re.sub(r"(?s)<!--.*?-->|```.*?```", "", text)
    for block in re.split(r"\n\s*\n", body):
        plain = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block).split())
        if plain and plain[0] not in "#|-*!<>":
            sentence = re.split(r"(?<=[.:])\s", plain)[0]
            return sentence if len(sentence) <= LONGEST else f"{sentence[:LONGEST]}..."
    return ""
