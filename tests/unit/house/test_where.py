"""The page that leads from a question to a function names functions that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/internals/where.md").read_text()
# A path, and perhaps a name that it defines.
PLACES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.(?:py|c))(?::(\w+))?`", PAGE)))


def test_there_are_places() -> None:
    assert len(PLACES) > 40


@pytest.mark.parametrize(("path", "name"), PLACES, ids=lambda part: part)
def test_a_place_is_there(path: str, name: str) -> None:
    files = [one for one in (ROOT / path, ROOT / "master/dlq_master" / path) if one.is_file()]
    assert files, f"there is no {path}"
    if name:
        defined = rf"(?m)^\s*(?:async )?(?:def|class) {name}\b|^{name}\b.* = "
        assert re.search(defined, files[0].read_text()), f"{path} does not define {name}"
