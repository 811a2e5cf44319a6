"""`make gpu`: its limits, its result file, its page, and a host that has nothing."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from benchmarks import ROOT
from benchmarks.gpu.__main__ import run
from benchmarks.gpu.bare import compile_or_take, fits, make, too_old, version_of
from benchmarks.gpu.check import Check, Finding, Outcome
from benchmarks.gpu.checks.registry import CHECKS, WHOLE_S
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.page import HEALTH, PATH, page_text, runs, versions_text, with_versions
from benchmarks.gpu.proof import Proof, kept, table
from benchmarks.gpu.running import MACHINE, Result, run_check
from benchmarks.gpu.wheels import keep_built

REAL = [Finding("driver", "580.65.06"), Finding("device", "NVIDIA H200")]


def proof(*results: Result, stand_in: str = "", machine: list[Finding] | None = None) -> Proof:
    found = REAL if machine is None else machine
    return Proof(found, stand_in, day="2026-01-02", commit="abc", results=list(results))


def result(outcome: Outcome, words: str = "", **figures: float) -> Result:
    findings = [Finding(name, value, "s", 2.0) for name, value in figures.items()]
    return Result("killed", "It holds.", outcome, words, 1.25, findings)


def test_all_limits_together_are_within_eight_minutes() -> None:
    assert sum(check.limit_s for check in CHECKS) + MACHINE.limit_s <= WHOLE_S <= 8 * 60


def test_names_are_words_of_the_command_line() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.name.isalpha() for check in CHECKS)


def test_the_page_follows_from_the_kept_runs() -> None:
    assert PATH.read_text() == page_text(runs()), "python -m benchmarks.gpu.page writes it"


def test_the_table_of_versions_follows_from_the_kept_runs() -> None:
    text = HEALTH.read_text()
    assert text == with_versions(text, runs()), "python -m benchmarks.gpu.page writes it"
    assert versions_text(()).startswith("None seen yet")


def test_a_kept_run_is_a_line_of_versions() -> None:
    machine = [*REAL, Finding("NVML", "13.580.65.06"), Finding("CUDA of the driver", "13.0")]
    nccl = Result("nccl", "", Outcome.HELD, findings=[Finding("nccl", "2.28.9")])
    text = versions_text([proof(nccl, machine=machine).told()])
    row = "| NVIDIA H200 | 580.65.06 | 13.0 | 13.580.65.06 | 2.28.9 | 2026-01-02 | abc |"
    assert row in text


def test_a_kept_run_is_on_the_page_with_its_date_driver_and_device() -> None:
    told = proof(result(Outcome.HELD, to_free=0.5)).told()
    text = page_text([told])
    assert "## NVIDIA H200, driver 580.65.06" in text
    assert "Run on 2026-01-02 at commit abc" in text
    assert "| killed | to_free | 0.5 s (goal: 2) |" in text


def test_a_missed_goal_and_a_broken_claim_are_seen_in_the_table() -> None:
    text = table(proof(result(Outcome.FAILED, "given | early", to_free=3.0)).told())
    assert "3 s (goal: 2, missed)" in text
    assert r"**failed**: given \| early" in text


@pytest.mark.parametrize(
    "run",
    [
        proof(result(Outcome.HELD), stand_in="numpy"),
        proof(result(Outcome.HELD), machine=[]),
        proof(result(Outcome.COULD_NOT)),
    ],
)
def test_a_run_that_proves_nothing_of_a_gpu_is_not_kept(run: Proof, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not run on a GPU|shown anything"):
        kept(run.told(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_real_run_is_kept_under_its_device_and_driver(tmp_path: Path) -> None:
    path = kept(proof(result(Outcome.HELD)).told(), tmp_path)
    assert path.name == "nvidia-h200-580.65.06.json"
    assert runs(tmp_path)[0]["checks"][0]["outcome"] == "held"


def part(name: str, outcome: Outcome, commit: str = "abc") -> dict[str, Any]:
    one = proof(Result(name, "It holds.", outcome)).told()
    return {**one, "commit": commit}


def test_a_part_of_a_run_replaces_its_checks_in_the_run_that_is_kept(tmp_path: Path) -> None:
    whole = proof(Result("facts", "", Outcome.HELD), Result("killed", "", Outcome.FAILED)).told()
    kept(whole, tmp_path)
    path = kept(part("killed", Outcome.HELD), tmp_path)
    told = [(it["check"], it["outcome"]) for it in json.loads(path.read_text())["checks"]]
    assert told == [("facts", "held"), ("killed", "held")]


@pytest.mark.parametrize("commit", ["another", "?"])
def test_a_part_at_another_commit_does_not_replace_the_whole(tmp_path: Path, commit: str) -> None:
    whole = proof(Result("facts", "", Outcome.HELD), Result("killed", "", Outcome.HELD)).told()
    kept({**whole, "commit": "?" if commit == "?" else "abc"}, tmp_path)
    with pytest.raises(ValueError, match="1 checks at commit"):
        kept(part("killed", Outcome.HELD, commit), tmp_path)
    kept({**whole, "commit": commit}, tmp_path)


def test_a_tree_without_git_names_its_commit_by_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_COMMIT", "1234abcd")
    assert Proof([]).commit == "1234abcd"


def test_a_check_that_hangs_is_ended_at_its_limit_and_what_it_told_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process says a finding, and then nothing."""
    program = "import sys, time; open(sys.argv[sys.argv.index('--root') + 1] + '/told', 'w')"
    program += '.write(\'{"name": "a", "value": 1}\\n\'); time.sleep(600)'
    began = subprocess.Popen

    def hangs(command: list[str], **words: object) -> object:
        return began([sys.executable, "-c", program, *command[3:]], **words)  # type: ignore[call-overload] # as the caller says

    monkeypatch.setattr("benchmarks.gpu.running.subprocess.Popen", hangs)
    monkeypatch.setattr("benchmarks.gpu.running.LEAST_S", 0.1)
    check = Check("hangs", "Never.", (), 1, lambda _site: iter(()))
    found = run_check(check, Machine(sys.executable), 1.0)
    assert (found.outcome, [it.name for it in found.findings]) == (Outcome.FAILED, ["a"])
    assert "longer than its limit" in found.words


LEAVES = """
import json, pathlib, sys
root = pathlib.Path(sys.argv[sys.argv.index("--root") + 1])
(root / "site").mkdir()
(root / "site" / "dlq-nodeagent.log").write_text("one\\nthe driver hangs\\n")
(root / "site" / "dlq-master.log").write_text("started\\n")
(root / "site" / "output.3").write_text("ImportError: no torch\\n")
(root / "told").write_text(json.dumps({"outcome": "OUTCOME", "words": "it broke"}) + "\\n")
"""


@pytest.mark.parametrize("outcome", ["failed", "could not", "held", "none here"])
def test_logs_and_outputs_of_a_check_that_does_not_hold_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    program, began = LEAVES.replace("OUTCOME", outcome), subprocess.Popen

    def leaves(command: list[str], **words: object) -> object:
        return began([sys.executable, "-c", program, *command[3:]], **words)  # type: ignore[call-overload] # as the caller says

    monkeypatch.setattr("benchmarks.gpu.running.subprocess.Popen", leaves)
    check = Check("killed", "It holds.", (), 30, lambda _site: iter(()))
    found = run_check(check, Machine(sys.executable), 30.0, tmp_path)
    assert str(found.outcome) == outcome
    kept = tmp_path / "logs" / "killed.txt"
    assert kept.exists() is (outcome in ("failed", "could not"))
    if kept.exists():
        assert "the agent's last words: one | the driver hangs" in found.words
        for word in ("dlq-nodeagent.log", "dlq-master.log", "output.3", "ImportError: no torch"):
            assert word in kept.read_text()


def test_a_check_with_less_than_its_limit_is_not_failed_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = subprocess.Popen

    def hangs(command: list[str], **words: object) -> object:
        return began([sys.executable, "-c", "import time; time.sleep(600)"], **words)  # type: ignore[call-overload] # as the caller says

    monkeypatch.setattr("benchmarks.gpu.running.subprocess.Popen", hangs)
    monkeypatch.setattr("benchmarks.gpu.running.LEAST_S", 0.1)
    check = Check("hangs", "Never.", (), 100, lambda _site: iter(()))
    found = run_check(check, Machine(sys.executable), 0.5)
    assert found.outcome == Outcome.COULD_NOT
    assert "no more time was left" in found.words


def test_time_that_a_check_leaves_is_for_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def quick(check: Check, machine: Machine, limit_s: float, out: Path) -> Result:
        limits.append(round(limit_s))
        return Result(check.name, check.claim, Outcome.HELD)

    monkeypatch.setattr("benchmarks.gpu.__main__.run_check", quick)
    monkeypatch.setattr("benchmarks.gpu.__main__.described", lambda _machine: [])
    assert run(Machine(sys.executable), ["facts", "health"], tmp_path) == 0
    own = {check.name: check.limit_s for check in CHECKS}
    assert limits == [own["facts"], own["facts"] + own["health"]]


def test_missed_goals_are_the_last_words_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.gpu.__main__.described", lambda _machine: [])
    missed = result(Outcome.HELD, to_free=3.0)
    monkeypatch.setattr("benchmarks.gpu.__main__.run_check", lambda *_words: missed)
    assert run(Machine(sys.executable), ["facts"], tmp_path) == 0
    assert "GOAL MISSED: killed, to_free: 3.0, and the goal is 2 s" in capsys.readouterr().out


def test_without_time_a_check_does_not_begin() -> None:
    found = run_check(CHECKS[0], Machine(sys.executable), 1.0)
    assert (found.outcome, found.words) == (Outcome.COULD_NOT, "no time was left")


def test_without_a_gpu_it_says_what_it_could_not_do_and_fails(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "facts", "killed", "--out", tmp_path / "out"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "held" in done.stdout:
        pytest.skip("this host has a GPU")
    assert done.returncode == 1
    for name in ("facts", "killed"):
        assert f"NOT SHOWN: {name}, could not: " in done.stdout
    told = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert [one["outcome"] for one in told["checks"]] == ["could not", "could not"]


@pytest.mark.parametrize(
    ("wheel", "does"),
    [
        ("grpcio-1.85.1-cp312-cp312-manylinux2014_x86_64.whl", True),
        ("grpcio-1.85.1-cp311-cp311-manylinux2014_x86_64.whl", False),
        ("protobuf-7.36.2-cp310-abi3-manylinux2014_x86_64.whl", True),
        ("sortedcontainers-2.4.0-py2.py3-none-any.whl", True),
    ],
)
def test_a_wheel_fits_the_python_of_its_name(wheel: str, does: bool) -> None:
    assert fits(wheel, "3.12") is does


@pytest.mark.long(
    "unit/benchmarks/test_gpu_proof.py::test_a_wheel_fits_the_python_of_its_name",
    "unit/benchmarks/test_gpu_proof.py::test_versions_are_compared_by_their_numbers",
)
def test_an_environment_without_pip_has_our_programs_and_names_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu.bare.HOME", tmp_path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    python = make(project, [Path(pytest.__file__).parents[1]])
    said = subprocess.run([python.with_name("dlq"), "version"], capture_output=True, text=True)
    assert project["project"]["version"] in said.stdout, said.stderr
    with pytest.raises(SystemExit, match="make gpu-wheels FOR=") as refused:
        make(project, [tmp_path / "nothing"])
    assert "grpcio 1.85.1 or newer (not here)" in str(refused.value)


def test_a_python_that_is_too_old_is_told_in_words() -> None:
    assert "Python 3.10 runs this" in too_old((3, 10))
    assert "GPU_JOB_PYTHON" in too_old((3, 10))
    assert too_old((3, 11)) == ""


def test_an_old_python_gets_as_far_as_these_words() -> None:
    tree = ast.parse((ROOT / "benchmarks/gpu/bare.py").read_text(), feature_version=(3, 8))
    first = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }
    assert "tomllib" not in first


def test_without_a_compiler_what_came_with_the_wheels_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shim = Path("nodeagent/dlq_nodeagent/shim/dlq-shim")
    library = Path("profiler/dlq_profiler/lib/libdlqprof.so")
    here, built, there = (tmp_path / name for name in ("here", "built", "there"))
    for path in (shim, library):
        (here / path).parent.mkdir(parents=True)
        (here / path).write_text("compiled")
        (here / path).chmod(0o755)
    assert len(keep_built(here, built)) == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    compile_or_take(Path(sys.executable), built, there)
    assert os.access(there / shim, os.X_OK)
    assert (there / library).read_text() == "compiled"
    compile_or_take(Path(sys.executable), tmp_path / "nothing", there)
    assert "checks that need an agent or the recorder cannot be made" in capsys.readouterr().err


def test_versions_are_compared_by_their_numbers() -> None:
    assert version_of("1.85.1") >= version_of("1.85") > version_of("1.9.12")
    assert version_of("") < version_of("0.1")
