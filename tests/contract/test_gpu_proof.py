"""Every check of `make gpu` against the fakes of NVML, of CUDA's driver and of nvidia-smi.

Each check is tried twice: on a host that is as it should be, and on one with a fault that the check
is there for. A stand-in takes the place of PyTorch.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from benchmarks import ROOT
from benchmarks.gpu.checks.registry import CHECKS

from support.gpu_box import GpuBox, compile_fakes

QUICK = ("facts", "parts", "nccl", "overhead", "suspended")
SHARED = ("exclusive", "killed", "paused")
SLOW = ("health", "hidden", "sampled", "lent", *SHARED)
# A field of nvidia-smi and its value by check, and the words of the broken claim.
LIES = {
    "facts": ("uuid", "GPU-another", "nvidia-smi 'GPU-another'"),
    "parts": ("mig.mode.current", "Enabled", "MIG is Enabled"),
    "health": ("temperature.gpu", "71", "37 degrees apart"),
}
OTHER_PYTHON = Path("/usr/bin/python3")


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def box(fakes: Path, tmp_path: Path) -> GpuBox:
    return GpuBox.at(fakes, tmp_path)


def test_each_check_is_tried_here() -> None:
    assert sorted((*QUICK, *SLOW)) == sorted(check.name for check in CHECKS)


def test_checks_that_need_no_master_hold_on_a_host_without_faults(box: GpuBox) -> None:
    code, told, said = box.run(*QUICK)
    assert {name: one["outcome"] for name, one in told.items()} == {
        **dict.fromkeys(QUICK, "held"), "parts": "none here",
    }, said  # fmt: skip
    assert code == 0
    assert "GOAL MISSED: overhead, step recorded" not in said  # a ratio; times are of the host
    assert {"type in dlq", "driver"} <= box.findings(told["facts"]).keys()
    found = box.findings(told["nccl"])
    assert found["1 ranks: wrappers: all-reduces"] == 5
    assert found["1 ranks: plugin: captured in a graph"] == 1
    assert found["plugin loaded"] == "yes, version 5 of the interface"
    assert not (box.out / "logs").exists()


def test_checks_with_a_master_hold_one_after_another_on_one_site(box: GpuBox) -> None:
    box.nvml.say("linger|300")
    assert box.run_on_one_site(*SHARED) == dict.fromkeys(SHARED, "held")


def test_a_recorder_that_drops_a_call_and_is_slow_breaks_the_claims(box: GpuBox) -> None:
    code, told, said = box.run("nccl", "overhead", spoiled="all-reduce slow")
    assert (code, told["nccl"]["outcome"], told["overhead"]["outcome"]) == (
        1,
        "failed",
        "failed",
    ), said
    assert "4 of 5 all-reduces were recorded" in told["nccl"]["words"]
    assert "a recorded step takes" in told["overhead"]["words"]
    assert "GOAL MISSED: overhead, step recorded to not, median" in said


@pytest.mark.long("unit/benchmarks/test_gpu_checks.py")
def test_a_recorder_that_tells_of_no_graph_breaks_the_claim(box: GpuBox) -> None:
    code, told, _ = box.run("nccl", spoiled="capture")
    assert (code, told["nccl"]["outcome"]) == (1, "failed")
    assert "the all-reduce in the graph was not recorded" in told["nccl"]["words"]


def test_a_card_that_nvidia_smi_knows_otherwise_breaks_the_claims(box: GpuBox) -> None:
    for field, value, _ in LIES.values():
        box.lie(field, value)
    code, told, said = box.run(*LIES)
    assert (code, {one["outcome"] for one in told.values()}) == (1, {"failed"}), said
    for name, (_, _, words) in LIES.items():
        assert words in told[name]["words"]


def test_a_driver_without_suspension_is_said_to_be_too_old(tmp_path: Path) -> None:
    old = GpuBox.at(compile_fakes(tmp_path / "fakes", "-DNO_SUSPENSION"), tmp_path)
    code, told, said = old.run("suspended", "lent")
    assert code == 1
    for name in ("suspended", "lent"):
        assert told[name]["outcome"] == "could not"
        assert "570 or newer" in told[name]["words"]
        assert f"NOT SHOWN: {name}" in said


@pytest.mark.long(
    "contract/test_gpu_proof.py::test_checks_with_a_master_hold_one_after_another_on_one_site"
)
@pytest.mark.parametrize("name", SLOW)
def test_a_check_with_master_and_agent_holds_on_a_host_without_faults(
    box: GpuBox, name: str
) -> None:
    """A busy GPU is seen to be so a second later, as by a real driver."""
    box.nvml.say("linger|500")
    box.nvml.say("late|1000")
    code, told, said = box.run(name)
    assert (code, told[name]["outcome"]) == (0, "held"), said
    assert "GOAL MISSED" not in said


@pytest.mark.long("contract/test_devices_nvml.py")
@pytest.mark.parametrize(
    ("line", "shown"), [("mig|0|1", "mig_mode"), ("mps|0|1|1048576", "shared by MPS")]
)
def test_a_card_in_parts_or_shared_is_withheld_with_its_reason(
    box: GpuBox, line: str, shown: str
) -> None:
    box.nvml.lines.remove("mig|0|0")
    box.nvml.say(line)
    code, told, said = box.run("parts")
    assert (code, told["parts"]["outcome"]) == (0, "held"), said
    assert shown in str(box.findings(told["parts"])["in dlq gpus"])


@pytest.mark.long("contract/test_devices.py")
def test_a_card_that_is_given_on_while_its_memory_lingers_breaks_the_claim(box: GpuBox) -> None:
    """The agent is told to count any memory as free. Logs and outputs are kept."""
    box.nvml.say("linger|3000")
    code, told, said = box.run("killed", free_below="1TiB")
    assert (code, told["killed"]["outcome"]) == (1, "failed"), said
    assert "MiB were in use when the next job began" in told["killed"]["words"]
    kept = (box.out / "logs" / "killed.txt").read_text()
    assert "==== site/dlq-nodeagent.log" in kept
    assert "==== site/notes.1" in kept


@pytest.mark.long("unit/benchmarks/test_gpu_checks.py")
@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("exclusive", "all GPUs are seen", "a job without GPUs sees"),
        ("hidden", "any memory is free", "shows it as withheld"),
        ("paused", "one bit of the save", "differ"),
        ("sampled", "utilization stays 0", "the GPU is seen to be busy"),
    ],
)
def test_a_fault_breaks_the_claim_of_its_check(
    box: GpuBox, name: str, fault: str, words: str
) -> None:
    if name == "exclusive":
        (box.root / "cuda" / "all").touch()
    if name == "sampled":
        box.nvml.say("late|100000000")
    code, told, said = box.run(
        name,
        free_below="1TiB" if name == "hidden" else "",
        spoiled="save" if name == "paused" else "",
    )
    assert (code, told[name]["outcome"]) == (1, "failed"), f"{fault}: {said}"
    assert words in told[name]["words"]


@pytest.mark.long("unit/benchmarks/test_gpu_proof.py", "contract/test_gpu_proof.py")
def test_the_command_makes_its_environment_on_another_python(box: GpuBox) -> None:
    """One without packages: they come from .venv, as from a directory of wheels."""
    version = "import sys; print(sys.version_info[:2] == (3, 11))"
    if (
        not OTHER_PYTHON.exists()
        or "True"
        not in subprocess.run(
            [OTHER_PYTHON, "-c", version], capture_output=True, text=True, check=False
        ).stdout
    ):
        pytest.skip("there is no other Python of the version of .venv")
    out = box.out
    done = subprocess.run(
        [
            OTHER_PYTHON, ROOT / "benchmarks" / "gpu" / "bare.py", "facts", "exclusive",
            "--stand-in", "numpy", "--out", out,
        ],
        env=box.environment() | {"GPU_HOME": str(box.root / "home"), "PYTHONPATH": ""},
        cwd=box.root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "facts: " in done.stdout
    assert os.access(box.root / "home" / "venv" / "bin" / "dlq-nodeagent", os.X_OK)
