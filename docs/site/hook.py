"""What MkDocs does not do by itself: pages link to files of the tree that lie outside of `docs`.

Each such file becomes a page below `tree/`: Markdown as it is, anything else as a block of code.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
ROOT = Path(__file__).resolve().parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file of the tree to which a page of `docs` links."""
    for source in list(files.documentation_pages()):
        for target in re.findall(LINK, source.content_string):
            path = _outside(target[1], source.src_uri)
            if path is not None and files.get_file_from_path(_page_of(path)) is None:
                files.append(File.generated(config, _page_of(path), content=_content(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the tree lead to their pages."""

    def redirected(link: re.Match[str]) -> str:
        path = _outside(link[2], page.file.src_uri)
        if path is None:
            return link[0]
        relative = posixpath.relpath(_page_of(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{link[1]}{relative}{link[3]}"

    return LINK.sub(redirected, markdown)


def _outside(target: str, source: str) -> str | None:
    """The path in the tree to which a page links; None: it stays in `docs`, or leaves the tree."""
    if re.match(r"[a-z]+:", target):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
    if source.startswith("tree/") or path.startswith(("docs/", "..")):
        return None
    return path if (ROOT / path).is_file() else None


def _page_of(path: str) -> str:
    return f"tree/{path}" if path.endswith(".md") else f"tree/{path}.md"


def _content(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):  # its own links lead to the tree, which the site does not have
        return re.sub(r"\[([^\]]+)\]\((?![a-z]+:|#)[^)]*\)", r"\1", text)
    return f"# {path}\n\n```{Path(path).suffix.lstrip('.')}\n{text}\n```\n"
