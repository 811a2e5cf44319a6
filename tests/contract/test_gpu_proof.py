"""Every check of `make gpu` against the fakes of NVML, of CUDA's driver and of nvidia-smi.

Each check is tried twice: on a host that is as it should be, and on one with the fault that the
check is there for. A stand-in takes the place of PyTorch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.gpu.checks.registry import CHECKS

from support.gpu_box import GpuBox, compile_fakes

QUICK = ("facts", "parts", "nccl", "overhead", "suspended")
SLOW = ("health", "exclusive", "killed", "hidden", "paused", "sampled")


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
    assert {"type in dlq", "driver"} <= box.findings(told["facts"]).keys()
    assert box.findings(told["nccl"])["1 ranks: wrappers: all-reduces"] == 5


def test_a_card_that_nvidia_smi_names_otherwise_breaks_the_claim(box: GpuBox) -> None:
    box.lie("uuid", "GPU-another")
    code, told, _ = box.run("facts")
    assert (code, told["facts"]["outcome"]) == (1, "failed")
    assert "nvidia-smi 'GPU-another'" in told["facts"]["words"]


def test_a_driver_without_suspension_is_said_to_be_too_old(tmp_path: Path) -> None:
    old = GpuBox.at(compile_fakes(tmp_path / "fakes", "-DNO_SUSPENSION"), tmp_path)
    code, told, said = old.run("suspended")
    assert (code, told["suspended"]["outcome"]) == (1, "could not")
    assert "570 or newer" in told["suspended"]["words"]
    assert "NOT SHOWN: suspended" in said


@pytest.mark.long(
    "contract/test_gpu_proof.py::test_checks_that_need_no_master_hold_on_a_host_without_faults"
)
@pytest.mark.parametrize("name", SLOW)
def test_a_check_with_master_and_agent_holds_on_a_host_without_faults(
    box: GpuBox, name: str
) -> None:
    box.nvml.say("linger|500")
    code, told, said = box.run(name)
    assert (code, told[name]["outcome"]) == (0, "held"), said


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
    """The agent is told to count any memory as free."""
    box.nvml.say("linger|3000")
    code, told, said = box.run("killed", free_below="1TiB")
    assert (code, told["killed"]["outcome"]) == (1, "failed"), said
    assert "MiB were in use when the next job began" in told["killed"]["words"]
