"""`make browser` has a browser or fails in words, and the automatic run says when it has none."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.web_pages import page_paths, templates

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests/support/chromium.sh"


def ran(place: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """The script on a machine that has these programs and no others."""
    for name, body in programs.items():
        program = place / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, SCRIPT], env={"PATH": str(place)}, capture_output=True, text=True, check=False
    )


def test_a_browser_that_is_there_is_taken(tmp_path: Path) -> None:
    done = ran(tmp_path, chromium="exit 0")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "chromium"))


def test_root_installs_a_missing_one(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    makes = f"printf '#!/bin/sh\\n' > {program}; /bin/chmod 755 {program}"
    done = ran(tmp_path, id="echo 0", apt_get=makes)
    assert (done.returncode, done.stdout.strip()) == (0, str(program))


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"id": "echo 1000"}, "only root can install it"),
        ({"id": "echo 0"}, "no apt-get"),
        ({"id": "echo 0", "apt_get": "exit 100"}, "apt-get could not install chromium"),
    ],
)
def test_a_machine_without_one_is_told_why(
    programs: dict[str, str], words: str, tmp_path: Path
) -> None:
    done = ran(tmp_path, **programs)
    assert done.returncode == 1
    assert words in done.stderr


def test_the_automatic_run_takes_the_short_form_or_says_that_no_page_was_tested() -> None:
    text = (ROOT / ".ci/run").read_text()
    part = re.findall(r"(?ms)^if [^\n]*make [^\n]*chromium; then\n(.*?)^else\n(.*?)^fi$", text)
    assert len(part) == 1
    assert re.search(r"run \d+m .* make browser SHORT=1", part[0][0])
    assert "NOT RUN" in part[0][1]


def test_a_new_page_is_found_by_its_route() -> None:
    assert {"/", "/jobs", "/jobs/1", "/nodes"} <= set(page_paths())
    assert "/jobs/{job}" in set(templates())


def test_the_types_of_the_scripts_are_checked_wherever_npm_gives_the_checker() -> None:
    said = subprocess.run(
        ["make", "-n", "browser", "SHORT=1"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "tsc -p tests/browser/types" in said.stdout
    assert "NOT CHECKED" in said.stdout


def test_the_pictures_of_the_readme_are_small_and_told_in_words() -> None:
    """`make browser PICTURES=1` makes them: PNG by a palette, which is the kind 3."""
    pictures = sorted((ROOT / "docs/pictures").glob("*.png"))
    assert len(pictures) == 3
    for picture in pictures:
        head = picture.read_bytes()[:26]
        assert (head[:4], head[25]) == (b"\x89PNG", 3), picture.name
        assert picture.stat().st_size < 120_000, picture.name
    shown = re.findall(
        r"!\[[^\]]{20,}\]\(docs/pictures/([a-z]+\.png)\)", (ROOT / "README.md").read_text()
    )
    assert sorted(shown) == [picture.name for picture in pictures]
