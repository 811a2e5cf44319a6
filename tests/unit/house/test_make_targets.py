"""What a make target collects can run with what that target makes."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.shim.binary import ShimMissing, ensure_shim
from support.extent import spread

ROOT = Path(__file__).resolve().parents[3]
# An environment of its own -> the marks of tests that need it.
ENVIRONMENTS = {".venv-torch": "torch", ".venv-frameworks": "frameworks"}


def recipe(*arguments: str) -> str:
    """What make would run, all of it, in a clone where nothing has been made."""
    said = subprocess.run(
        ["make", "-nB", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return said.stdout


def marks_of(path: Path) -> set[str]:
    """The marks that a file gives to all its tests."""
    text = path.read_text()
    for statement in ast.parse(text).body if "pytestmark" in text else ():
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            return set(re.findall(r"mark\.(\w+)", ast.unparse(statement.value)))
    return set()


def chosen(expression: str, marks: set[str]) -> bool:
    """Whether `pytest -m expression` takes a test with these marks."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    return bool(eval(expression, {}, {name: name in marks for name in names}))


def missing(make: str, files: list[Path]) -> list[str]:
    return [
        f"{path.name} needs {directory}"
        for path in files
        for directory, mark in ENVIRONMENTS.items()
        if mark in marks_of(path) and f"{directory}/bin/python -m pip install" not in make
    ]


def test_the_container_tests_need_no_environment_that_their_target_does_not_make() -> None:
    make = recipe("podman")
    (expression,) = re.findall(r"-m '([^']+)' tests", make)
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    taken = [path for path in tests if chosen(expression, marks_of(path))]
    assert {"test_podman.py", "test_podman_walls.py"} <= {path.name for path in taken}
    assert missing(make, taken) == []


def test_make_test_takes_every_file_in_exactly_one_of_its_parts() -> None:
    parts = re.findall(r"-m pytest -q (.+?) -m '", recipe("test"))
    taken: Counter[str] = Counter()
    for words in (part.split() for part in parts):
        ignored = tuple(word.removeprefix("--ignore=") for word in words if word[0] == "-")
        for folder in (word for word in words if word[0] != "-"):
            files = (str(path.relative_to(ROOT)) for path in files_of_tests(ROOT / folder))
            taken.update(name for name in files if not name.startswith(ignored or ("-",)))
    elsewhere = ("tests/browser/", "tests/e2e/", "tests/slurm/", "tests/systemd/")
    every = (str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    assert taken == dict.fromkeys((name for name in every if not name.startswith(elsewhere)), 1)


def files_of_tests(place: Path) -> Iterator[Path]:
    """The file itself, or all below a folder."""
    return iter([place]) if place.is_file() else place.rglob("test_*.py")


@pytest.mark.parametrize("only", ["podman", "podman-ddp", "podman-frameworks", "lightning", "hf"])
def test_a_scenario_by_name_makes_what_it_needs(only: str) -> None:
    word = only.replace("-", "_")
    taken = [path for path in sorted((ROOT / "tests/e2e").glob("test_*.py")) if word in path.stem]
    assert taken
    assert missing(recipe("e2e", f"ONLY={only}"), taken) == []


@pytest.mark.parametrize(
    "target",
    ["browser", "e2e", "podman", "slurm", "systemd", "profiler", "torture", "storm", "attack"],
)
def test_a_target_of_its_own_fails_where_all_its_tests_skip(target: str) -> None:
    assert "--fail-if-all-skip" in recipe(target)


def run_alone(place: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One file of tests below our conftest.py."""
    (place / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (place / "test_it.py").write_text(text)
    asked = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*asked, "--rootdir", place, place],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code"), spread([("pytest.skip('no podman')", 1), ("pass", 0)], 1)
)
def test_a_run_in_which_every_test_skips_is_red_and_says_why(
    body: str, code: int, tmp_path: Path
) -> None:
    text = f"import pytest\n\ndef test_it():\n    {body}\n"
    done = run_alone(tmp_path, text, "-rs", "--fail-if-all-skip")
    assert done.returncode == code, done.stdout + done.stderr
    assert ("no podman" in done.stdout) == bool(code)


@pytest.mark.parametrize(("body", "code"), [("assert False", 1), ("print('14 kills')", 0)])
def test_figures_that_a_run_prints_are_not_among_the_lines_of_the_log_unless_it_fails(
    body: str, code: int, tmp_path: Path
) -> None:
    test = f"    structlog.get_logger().info('ticked')\n    {body}\n"
    done = run_alone(tmp_path, f"import structlog\n\ndef test_it():\n{test}", "-s")
    assert done.returncode == code, done.stdout + done.stderr
    assert ("event='ticked'" in done.stdout) == bool(code)
    assert ("14 kills" in done.stdout) != bool(code)


@pytest.mark.parametrize("target", ["setup", "demo", "demo-slo", "test", "check"])
def test_without_a_compiler_nothing_is_begun_and_the_agents_words_are_said(target: str) -> None:
    asked = ["make", target, "CC=/nonexistent/cc"]
    # Make that is started by make says so, in lines of its own.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(asked, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    with pytest.raises(ShimMissing) as agent:
        ensure_shim(Path("/nonexistent/dlq-shim"))
    (said,) = re.findall(r"Install gcc or clang \(.*\)", done.stderr)
    assert said in str(agent.value)


def test_an_environment_of_ones_own_leaves_the_usual_one_as_it_is() -> None:
    make = recipe("test", "VENV=build/matrix/3.99", "PYTHON=python3.99")
    assert "--python python3.99 build/matrix/3.99" in make
    assert "build/matrix/3.99/bin/python -m pytest" in make
    assert ".venv" not in make
