"""A training with children is suspended again and again, on the fakes of NVML and CUDA's driver:
no loss differs, and both children come back, also on another GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import ROOT
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rounds import main

from support.gpu_box import UUID, GpuBox, compile_fakes

OTHER = UUID[:-1] + ("0" if UUID[-1] != "0" else "1")
FEW, MANY = 5, 200


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def box(fakes: Path, tmp_path: Path) -> GpuBox:
    return GpuBox.at(fakes, tmp_path)


def rounds(box: GpuBox, count: int) -> dict[str, Any]:
    words = ["--stand-in", "numpy", "--bytes", str(10**9), "--rounds", str(count), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.rounds", *words],
        cwd=ROOT, env=box.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def judge(told: dict[str, Any], count: int, on_others: int) -> None:
    assert told["broken"] == ""
    assert (told["differ"], told["same_state"], told["whole"]) == (0, True, True)
    assert (len(told["seconds"]), told["on_others"]) == (count, on_others)
    assert told["processes"] >= 3, "the training, its child on the GPU, and one that is on none"


def test_no_loss_differs_after_some_rounds_to_and_fro_between_two_gpus(box: GpuBox) -> None:
    box.nvml.add_gpu(OTHER)
    judge(rounds(box, FEW), FEW, FEW)


def test_a_host_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "lacks", lambda *_: "there is no driver")
    monkeypatch.setattr(sys, "argv", ["rounds", "--stand-in", "numpy"])
    with pytest.raises(SystemExit, match="not here: there is no driver"):
        main()


@pytest.mark.long("contract/test_suspension_rounds.py")
def test_no_loss_differs_after_200_rounds(box: GpuBox) -> None:
    judge(rounds(box, MANY), MANY, 0)


@pytest.mark.long("contract/test_suspension_rounds.py")
def test_a_driver_that_cannot_bring_a_process_to_another_gpu_brings_it_to_its_own(
    box: GpuBox,
) -> None:
    box.nvml.add_gpu(OTHER)
    box.nvml.lines.remove("cuda|13000")
    box.nvml.say("cuda|12080")
    judge(rounds(box, FEW), FEW, 0)
