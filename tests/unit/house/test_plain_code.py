"""Texts of the code are plain English: docstrings, comments, help, messages and reasons.

The same rules as for pages (test_plain_english.py), counted for each folder.
"""

import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from support.plain_english import hard_in_code
from support.reference_pages import ROOT

# How many hard sentences a folder still has. It may only get better; at none it leaves the table.
NOT_YET: dict[str, int] = {
    "master/dlq_master/policy": 6,
    "master/dlq_master/store": 1,
}
PRODUCT = (
    "benchmarks",
    "cli",
    "client",
    "broker",
    "common",
    "deploy",
    "examples",
    "hatch_build.py",
    "master",
    "nodeagent",
    "profiler",
    "proto",
    "simulator",
    "web",
    "notify",
)
LANGUAGES = {".c", ".conf", ".h", ".proto", ".py", ".service", ".sh", ".socket", ".toml", ".yml"}
_DEPTH = 3


@cache
def hard_sentences() -> dict[str, list[str]]:
    """Folder -> its hard sentences, each with the file and the line where its text begins."""
    found: dict[str, list[str]] = {}
    listed = subprocess.check_output(["git", "ls-files", *PRODUCT], cwd=ROOT, text=True)
    for name in listed.split():
        path = ROOT / name
        if path.suffix in LANGUAGES and path.exists() and not name.startswith("proto/gen/"):
            mine = found.setdefault(folder_of(name), [])
            mine += [f"{name}:{line}: {one}" for line, one in hard_in_code(path)]
    return found


def folder_of(name: str) -> str:
    """The folder that counts a file: at most three levels down."""
    return "/".join(Path(name).parts[:-1][:_DEPTH]) or "."


def test_folders_are_plain_english() -> None:
    hard = hard_sentences()
    worse = [
        one for folder, each in hard.items() if len(each) > NOT_YET.get(folder, 0) for one in each
    ]
    assert not worse, "\n".join(worse)


def test_a_folder_that_got_better_is_held_to_it() -> None:
    counts = Counter({folder: len(each) for folder, each in hard_sentences().items()})
    better = {folder: counts[folder] for folder, most in NOT_YET.items() if counts[folder] < most}
    assert not better, f"write these numbers in NOT_YET: {better}"


@pytest.mark.parametrize(
    ("source", "hard"),
    [
        ('"""Evicts jobs from reclaimed nodes."""', []),
        ('"""What is asked back goes first."""', [1]),
        ("# Who waits is told.\n", [1]),
        ("x = 1\n# One comment of many words that runs on\n# and on " + "and on " * 9, [2]),
        ('raise ValueError(f"{x} is refused: who asks must be an operator")', [1]),
        ('"""Runs a command.\n\n    \b\n    dlq run who what   what it does\n"""', []),
        ("x = 1  # noqa: who, what and those that speak to a tool\n", []),
    ],
)
def test_it_finds_hard_sentences_in_code(source: str, hard: list[int], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert [line for line, _ in hard_in_code(path)] == hard


def test_it_reads_comments_of_c_and_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "one.proto"
    path.write_text(
        '// Good words.\nstring url = 1; // What is asked.\n/* Who\n * asks. */ "// Who"\n'
    )
    assert [line for line, _ in hard_in_code(path)] == [2, 3]


def test_it_reads_comments_of_shell_and_configurations(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('# Good words.\na = 1  # Who\n\n# What is asked\n# goes.\n# who = "a"\n')
    assert [line for line, _ in hard_in_code(path)] == [4]
