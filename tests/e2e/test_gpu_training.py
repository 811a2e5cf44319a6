"""A check of `make gpu` with PyTorch on the CPU beside the fakes: the code of a real training."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.framework_trial import TORCH
from support.gpu_box import GpuBox, compile_fakes

pytestmark = [pytest.mark.e2e, pytest.mark.torch]
PYTHON = TORCH / "bin" / "python"


@pytest.mark.skipif(not PYTHON.exists(), reason="there is no PyTorch here")
def test_a_training_of_pytorch_is_paused_and_not_one_bit_differs(tmp_path: Path) -> None:
    box = GpuBox.at(compile_fakes(tmp_path / "fakes"), tmp_path)
    code, told, said = box.run("paused", stand_in="torch-cpu", python=PYTHON)
    assert (code, told["paused"]["outcome"]) == (0, "held"), said
    assert box.findings(told["paused"])["losses that differ"] == 0
