"""Texts of the code are plain English: docstrings, comments, help, messages and reasons.

The same rules as for pages (test_plain_english.py).
"""

import subprocess
from pathlib import Path

import pytest

from support.plain_english import hard_in_code
from support.reference_pages import ROOT

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


def test_texts_of_code_are_plain_english() -> None:
    listed = subprocess.check_output(["git", "ls-files", *PRODUCT], cwd=ROOT, text=True)
    hard = [
        f"{name}:{line}: {one}"
        for name in listed.split()
        if Path(name).suffix in LANGUAGES
        and (ROOT / name).exists()
        and not name.startswith("proto/gen/")
        for line, one in hard_in_code(ROOT / name)
    ]
    assert not hard, "\n".join(hard)


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
