"""`make gpu`: its limits, its result file, its page, and a host that has nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from benchmarks import ROOT
from benchmarks.gpu.bare import fits, make, version_of
from benchmarks.gpu.check import Check, Finding, Outcome
from benchmarks.gpu.checks.registry import CHECKS, WHOLE_S
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.page import PATH, page_text, runs
from benchmarks.gpu.proof import Proof, kept, table
from benchmarks.gpu.running import MACHINE, Result, run_check

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


def test_versions_are_compared_by_their_numbers() -> None:
    assert version_of("1.85.1") >= version_of("1.85") > version_of("1.9.12")
    assert version_of("") < version_of("0.1")
