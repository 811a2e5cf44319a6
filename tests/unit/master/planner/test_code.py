"""Which code a planner runs: any change of it is another version, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_master.planner.code import OtherCode, check, digest, greeting


def a_package(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


FILES = {
    "model/jobs/job.py": "a = 1",
    "policy/promise/slots/plan.py": "b = 2",
    "control/loop/loop.py": "c = 3",
}


def test_the_same_files_elsewhere_are_the_same_code(tmp_path: Path) -> None:
    one = digest(a_package(tmp_path / "one", FILES))
    other = a_package(tmp_path / "other", FILES | {"control/loop/loop.py": "c = 4"})
    (other / "model" / "job.pyc").write_text("compiled")
    assert digest(other) == one, "nobody asks a planner what the loop does"


@pytest.mark.parametrize(
    "changed",
    [
        {"model/jobs/job.py": "a = 2"},
        {"policy/promise/slots/plan.py": "b = 2\n"},
        {"policy/promise/more.py": ""},
        {"model/jobs/job.py": "", "model/jobs.py": "a = 1"},
    ],
)
def test_any_change_is_another_version(tmp_path: Path, changed: dict[str, str]) -> None:
    one = digest(a_package(tmp_path / "one", FILES))
    assert digest(a_package(tmp_path / "two", FILES | changed)) != one


def test_a_greeting_is_of_this_code_of_another_or_none() -> None:
    check(greeting("abc"), "abc")
    with pytest.raises(OtherCode, match="restart the master"):
        check(greeting("abd"), "abc")
    with pytest.raises(ValueError, match="which code"):
        check(b"\x80\x05", "abc")
