"""The machine of a run: its interpreter for jobs, its stand-in, and what it lacks for a check."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import ROOT
from benchmarks.gpu.check import Finding
from benchmarks.gpu.jobs.cuda import Driver, NoCuda
from benchmarks.gpu.jobs.work import VARIABLE
from dlq_nodeagent.devices.nvml import NvmlDevices
from dlq_nodeagent.devices.port import DevicesUnavailable

STAND_INS = ("numpy", "torch-cpu")
TORCH = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.device_count())"
# A driver may lie where only this variable finds it; and jobs ask the same driver as we do.
PASSED = ("LD_LIBRARY_PATH", "FAKE_NVML", "FAKE_CUDA")


@dataclass(frozen=True, slots=True)
class Machine:
    """`job_python` runs jobs; `stand_in` is empty where the GPUs are real."""

    job_python: str
    stand_in: str = ""

    def environment(self) -> dict[str, str]:
        """The variables of jobs, beside those that dlq sets."""
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        named = {VARIABLE: self.stand_in} if self.stand_in else {}
        return {**passed, **named, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}

    def scaled(self, amount: float) -> float:
        """Seconds or steps of a check; less of them with a stand-in, which only tries the check."""
        return amount / 5 if self.stand_in else amount

    def lacks(self, needs: Sequence[str]) -> str:
        """The first need that is not met, and why; empty: all are."""
        asked = {"nvml": _no_nvml, "smi": _no_smi, "cuda": _no_cuda, "torch": self._no_torch}
        return next((why for need in needs if (why := asked[need]())), "")

    def described(self) -> Iterator[Finding]:
        """Facts of the machine, as far as it can be asked."""
        yield Finding("kernel", platform.release())
        yield Finding("account", "root" if os.geteuid() == 0 else "not root")
        if not _no_nvml():
            devices = NvmlDevices()
            yield Finding("driver", devices.driver_version())
            found = devices.devices()
            yield Finding("device", ", ".join(sorted({device.model_name for device in found})))
            yield Finding("devices", len(found))
        if not _no_cuda():
            yield Finding("CUDA of the driver", cuda_words(Driver().version()))
        yield Finding("stand-in", self.stand_in or "none")

    def _no_torch(self) -> str:
        if self.stand_in == "numpy":
            return ""
        try:
            said = subprocess.run(
                [self.job_python, "-c", TORCH],
                capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self.job_python} does not answer: {error}"
        if said.returncode:
            return f"{self.job_python} has no PyTorch: {said.stderr.strip().splitlines()[-1]}"
        if not self.stand_in and not int(said.stdout.split()[-1]):
            return f"the PyTorch of {self.job_python} sees no GPU: {said.stdout.strip()}"
        return ""


def cuda_words(version: int) -> str:
    """13000 is 13.0."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _no_nvml() -> str:
    try:
        devices = NvmlDevices()
    except DevicesUnavailable as error:
        return str(error)
    return "" if devices.devices() else "NVML lists no GPU"


def _no_smi() -> str:
    return "" if shutil.which("nvidia-smi") else "there is no nvidia-smi in PATH"


def _no_cuda() -> str:
    try:
        count = Driver().count()
    except NoCuda as error:
        return f"there is no CUDA driver: {error}"
    return "" if count else "CUDA's driver lists no GPU"


def interpreter(named: str, stand_in: str) -> str:
    """The interpreter of jobs: the named one, or that of the host; of `numpy`, the one that runs
    us.
    """
    if stand_in == "numpy":
        return sys.executable
    return named or shutil.which("python3") or "/usr/bin/python3"
