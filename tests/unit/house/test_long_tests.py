"""`make test` leaves out only tests that say which smaller test holds their assertions."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
ROOT = TESTS.parent
MARK = re.compile(r"mark\.long\(([^)]*)\)")
MARKS = [
    (path.relative_to(TESTS), re.findall(r'"([^"]+)"', names))
    for path in sorted(TESTS.rglob("test_*.py"))
    if path != Path(__file__)
    for names in MARK.findall(path.read_text())
]


@pytest.mark.parametrize(("path", "names"), MARKS, ids=lambda value: str(value))
def test_each_long_test_names_smaller_ones_that_make_test_runs(
    path: Path, names: list[str]
) -> None:
    assert names, f"{path}: pytest.mark.long names no smaller test"
    for name in names:
        smaller, _, function = name.partition("::")
        text = (TESTS / smaller).read_text()
        assert function == "" or f"def {function}(" in text, f"{path}: {name} is not there"
        assert not re.search(r"^pytestmark\b[^\n]*(\n [^\n]*)*mark\.long", text, re.MULTILINE), name
        if function:
            before = text[: text.index(f"def {function}(")]
            assert "mark.long" not in before[before.rfind("\n\n\n") :], name


def test_the_automatic_run_takes_what_make_test_leaves_out() -> None:
    parts = re.findall(r"make (test\S*)", (ROOT / ".ci/run").read_text())
    assert {"test", "test-rest"} <= set(parts)
