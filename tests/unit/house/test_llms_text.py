"""`llms.txt` of the site names every page of the navigation, from the pages as they are now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import yaml

ROOT = Path(__file__).resolve().parents[3]


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llms", ROOT / "docs/site/llms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site(tmp_path: Path) -> SimpleNamespace:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config |= {"docs_dir": str(ROOT / "docs"), "site_dir": str(tmp_path)}
    return SimpleNamespace(config=config, text=tmp_path / "llms.txt")


def test_each_page_has_its_line_and_the_build_writes_it(tmp_path: Path) -> None:
    made = site(tmp_path)
    hook().on_post_build(made.config)
    text = made.text.read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    pages = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1])
    assert links == [page.removesuffix(".md") + ".html" for page in pages]
    assert re.search(r"(?m)^- \[One machine in one command\]\(start/one-machine.html\): .+", text)
    assert text.startswith("# dlq\n\n> ")


def test_the_site_runs_it() -> None:
    assert "docs/site/llms.py" in (ROOT / "mkdocs.yml").read_text()
