"""Parts of the checks of `make gpu`: jobs that end too early, protection, recorder, machines."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks import ROOT
from benchmarks.gpu.check import ClaimBroken, CouldNot, Finding
from benchmarks.gpu.checks.giving import protection
from benchmarks.gpu.checks.recording import _plugin, why_no_capture
from benchmarks.gpu.checks.suspending import _not_measured
from benchmarks.gpu.checks.training import _is_busy
from benchmarks.gpu.jobs.cuda import NO_DEVICE, CudaError
from benchmarks.gpu.jobs.notes import Notes
from benchmarks.gpu.machine import Machine, _no_cuda, hidden_gpus, no_account
from benchmarks.gpu.site import Site, Submitted
from benchmarks.gpu.watching import number

from dlq_nodeagent.devices.port import Device, DeviceSample


@dataclass
class EndedSite:
    """A site whose job has ended."""

    state: str = "failed"

    def job(self, submitted: Submitted) -> dict[str, Any]:
        return {"state": self.state, "end_reason": "exit_code"}

    def output(self, submitted: Submitted, lines: object) -> str:
        return "Traceback\nImportError: no torch\n"


def submitted(tmp_path: Path, state: str = "failed") -> Submitted:
    return Submitted("7", Notes(tmp_path / "notes"), EndedSite(state))  # type: ignore[arg-type] # it asks for these two only


def test_a_job_that_has_ended_is_not_waited_for_and_its_output_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu.site.STATE_EVERY_S", 0.0)
    with pytest.raises(ClaimBroken) as broken:
        submitted(tmp_path).noted("trains", 3600)
    assert "job 7 ended (failed, exit_code) before it noted 'trains'" in str(broken.value)
    assert "Traceback | ImportError: no torch" in str(broken.value)


def test_a_note_of_a_job_that_has_ended_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu.site.STATE_EVERY_S", 0.0)
    job = submitted(tmp_path)
    job.notes.take("ended", losses=3)
    assert job.noted("ended", 3600)["losses"] == 3


@pytest.mark.parametrize(
    ("facts", "says_exclusive", "expected"),
    [
        ({"refused": {"nvidia0": "EPERM"}, "code": NO_DEVICE}, True, "the control group"),
        ({"refused": {"nvidia0": "EPERM"}, "code": NO_DEVICE}, False, "not known"),
        ({"refused": {"nvidia0": "EACCES"}, "code": NO_DEVICE}, True, "not known"),
        ({"refused": {"nvidia0": "EPERM"}, "code": None}, True, "not known"),
        ({"refused": {}, "code": NO_DEVICE}, True, "not known"),
        ({"opened": ["nvidia0"], "code": NO_DEVICE}, True, "visible devices only"),
        ({"uuids": ["GPU-1"], "code": 0}, True, "visible devices only"),
    ],
)
def test_a_control_group_protects_only_where_its_refusal_is_seen(
    facts: dict[str, Any], says_exclusive: bool, expected: str
) -> None:
    pried = {"uuids": [], "opened": [], "refused": {}, **facts}
    assert protection(pried, says_exclusive=says_exclusive) == expected


def test_a_host_without_cuda_is_an_error_and_no_proof_of_protection(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.jobs.look", "--ask"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(said.stdout)
    if told["code"] == 0:
        pytest.skip("this host has CUDA")
    assert told["uuids"] == []
    assert told["error"]


@pytest.mark.parametrize(
    ("api", "ranks", "excuse"),
    [(0, 2, "no plugin"), (4, 2, "version 4"), (5, 1, "a single rank"), (5, 2, "")],
)
def test_a_capture_may_be_missing_for_a_named_reason_only(
    api: int, ranks: int, excuse: str
) -> None:
    why = why_no_capture(api, ranks)
    assert (excuse in why) if excuse else why == ""


@pytest.mark.parametrize(
    ("nccl", "loaded", "holds"),
    [("2.28.9", True, True), ("2.28.9", False, False), ("2.22.3", False, True)],
)
def test_a_plugin_that_a_new_nccl_has_not_loaded_breaks_the_claim(
    nccl: str, loaded: bool, holds: bool
) -> None:
    called = {"plugin": "/a/file" if loaded else "", "api": 5 if loaded else 0}

    def told() -> Iterator[Finding]:
        return _plugin({**called, "versions": {"nccl": nccl}})

    if holds:
        assert [finding.name for finding in told()] == ["plugin loaded"]
    else:
        with pytest.raises(ClaimBroken, match="has not loaded the plugin"):
            list(told())


@pytest.mark.parametrize(("percent", "busy"), [(None, True), (0, False), (79, False), (80, True)])
def test_a_gpu_at_0_percent_is_not_busy(percent: int | None, busy: bool) -> None:
    assert _is_busy(DeviceSample("GPU-a", percent)) is busy


@pytest.mark.parametrize(
    ("word", "value"), [("Yes", 1), ("No", 0), ("1", 1), ("650.5", 650.5), ("[N/A]", None)]
)
def test_words_of_nvidia_smi_are_numbers(word: str, value: float | None) -> None:
    assert number(word) == value


# ---- the machine


def gpus(count: int) -> list[Device]:
    return [
        Device(index, f"GPU-{index}a", "h200", "NVIDIA H200", 1 << 30, virtual=False)
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("visible", "hides"),
    [(None, False), ("0,1", False), ("GPU-0a,GPU-1a", False), ("1", True), ("", True)],
)
def test_gpus_that_are_not_for_this_run_are_named(visible: str | None, hides: bool) -> None:
    why = hidden_gpus(gpus(2), visible)
    assert bool(why) is hides
    assert not hides or "the agent would give out GPU 0" in why


def test_a_uid_without_an_account_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "uid 54321 has no account" in no_account(54321)
    assert "nobody" in no_account(65534)
    monkeypatch.setattr("benchmarks.gpu.site.no_account", lambda: "uid 54321 has no account")
    with pytest.raises(CouldNot, match="no account"):
        _ = Site(Machine("python3"), tmp_path).cluster


def test_without_a_shim_no_agent_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_nodeagent.shim.binary.shim_path", lambda: tmp_path / "none")
    with pytest.raises(CouldNot, match="launch shim is missing"):
        _ = Site(Machine("python3"), tmp_path).cluster


@pytest.mark.parametrize("code", [802, 803, 999])
def test_a_driver_that_does_not_start_cannot_be_checked(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def count(self) -> int:
            raise CudaError("cuInit", code)

    monkeypatch.setattr("benchmarks.gpu.machine.Driver", Broken)
    assert f"does not start: cuInit: CUDA error {code}" in _no_cuda()


def test_jobs_keep_the_places_of_packages_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/torch:/opt/more")
    places = Machine("python3").environment()["PYTHONPATH"].split(":")
    assert places == [str(ROOT), str(ROOT / "client"), "/opt/torch", "/opt/more"]


def test_pytorch_is_asked_for_once_and_as_a_job_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(
        "class cuda:\n    device_count = staticmethod(lambda: 1)\n"
        "class version:\n    cuda = '13.0'\n__version__ = '2.11'\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = Machine(sys.executable)
    assert machine.lacks(("torch",)) == ""
    (finding,) = [it for it in machine.described() if it.name.startswith("PyTorch")]
    assert finding.value == "2.11 13.0 1"
    (tmp_path / "torch.py").unlink()
    assert machine.knowing([finding]).lacks(("torch",)) == ""
    lacking = Finding(finding.name, "none: no module torch")
    assert machine.knowing([lacking]).lacks(("torch",)) == "no module torch"


# ---- jobs


@pytest.mark.parametrize("folder", ["benchmarks/gpu/jobs", "client/dlq_train"])
def test_jobs_run_on_python_3_10(folder: str) -> None:
    later = {"file_digest", "tomllib", "StrEnum", "UTC", "Self", "ExceptionGroup", "TaskGroup"}
    for path in sorted((ROOT / folder).glob("*.py")):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree)}
        assert not names & later, path


HIDES = """
import os, sys, time
from benchmarks.gpu.jobs.hold import hide
from benchmarks.gpu.jobs.notes import Notes
hide(Notes(sys.argv[1]))
print(os.getpid(), flush=True)
"""


def test_a_process_that_hides_is_the_first_of_its_namespace_or_says_why_not(
    tmp_path: Path,
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", HIDES, tmp_path / "notes"], cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (note,) = Notes(tmp_path / "notes").all("hidden")
    assert (said.stdout.strip() == "1") is note["done"]
    assert note["done"] or note["why"]


@pytest.mark.parametrize(
    ("gpu_gb", "host_gb", "words"),
    [
        (98, 64, []),
        (98, 16, ["40 GB: not measured, 32 GB of the host are free"]),
        (28, 64, ["40 GB: not measured, the GPU has too little memory"]),
    ],
)
def test_a_goal_that_does_not_fit_is_told_as_not_measured(
    gpu_gb: int, host_gb: int, words: list[str]
) -> None:
    found = _not_measured(gpu_gb * 10**9, host_gb * 10**9)
    assert [f"{finding.name}: {finding.value}" for finding in found] == words
