"""The manual pages are those of the code, and roff reads them."""

import shutil
import subprocess

import pytest

from support.man_pages import FOLDER, all_pages


@pytest.mark.parametrize("name", all_pages())
def test_the_pages_are_fresh(name: str) -> None:
    assert (FOLDER / name).read_text() == all_pages()[name], (
        "run: PYTHONPATH=tests python tests/support/man_pages.py"
    )


def test_no_other_pages_lie_there() -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*")}
    assert there == set(all_pages())


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
@pytest.mark.parametrize("name", all_pages())
def test_roff_finds_nothing_wrong(name: str) -> None:
    command = ["groff", "-man", "-ww", "-z", "-Tutf8", str(FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
