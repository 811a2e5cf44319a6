"""The machine of a run: its interpreter for jobs, its stand-in, and what it lacks for a check."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks import ROOT
from benchmarks.gpu.check import Finding
from benchmarks.gpu.jobs.cuda import CudaError, Driver, NoCuda
from benchmarks.gpu.jobs.work import SPOILED, VARIABLE
from dlq_common.errors import PermissionDenied
from dlq_master.rpc.people.host_accounts import host_account
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.trial import tried
from dlq_nodeagent.devices.nvml import NvmlDevices
from dlq_nodeagent.devices.port import Device, DevicesUnavailable
from dlq_nodeagent.shim.binary import ShimMissing, ensure_shim

STAND_INS = ("numpy", "torch-cpu")
TORCH = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.device_count())"
TORCH_NAME, NONE = "PyTorch, CUDA, GPUs", "none: "
VISIBLE = "CUDA_VISIBLE_DEVICES"
# A driver may lie where only this variable finds it; and jobs ask the same driver as we do.
PASSED = ("LD_LIBRARY_PATH", "FAKE_NVML", "FAKE_CUDA", SPOILED)
# A host that is busy with other work needs more: all waits and limits are so many times as long.
PATIENCE = float(os.environ.get("GPU_PATIENCE", "1"))


@dataclass(frozen=True, slots=True)
class Machine:
    """`job_python` runs jobs; `stand_in` is empty where the GPUs are real."""

    job_python: str
    stand_in: str = ""
    no_torch: str | None = None
    """Why there is no PyTorch for jobs; empty: there is; None: nothing has asked."""

    def environment(self) -> dict[str, str]:
        """The variables of jobs, beside those that dlq sets."""
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        named = {VARIABLE: self.stand_in} if self.stand_in else {}
        places = [str(ROOT), str(ROOT / "client"), os.environ.get("PYTHONPATH", "")]
        return {**passed, **named, "PYTHONPATH": ":".join(filter(None, places))}

    def knowing(self, described: Sequence[Finding]) -> Machine:
        """The same, with the answer about PyTorch in its description: it takes seconds to ask."""
        told = [str(finding.value) for finding in described if finding.name == TORCH_NAME]
        if not told:
            return self
        return replace(self, no_torch=told[0].removeprefix(NONE) if NONE in told[0] else "")

    def goal(self, amount: float) -> float:
        """A goal in seconds; a stand-in's goes with the patience for a busy host."""
        return amount * PATIENCE if self.stand_in else amount

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
        yield Finding("account", no_account() or ("root" if os.geteuid() == 0 else "not root"))
        if not _no_nvml():
            devices = NvmlDevices()
            yield Finding("driver", devices.driver_version())
            yield Finding("NVML", devices.library_version())
            found = devices.devices()
            yield Finding("device", ", ".join(sorted({device.model_name for device in found})))
            yield Finding("devices", len(found))
        if not _no_cuda():
            yield Finding("CUDA of the driver", cuda_words(Driver().version()))
        yield Finding("stand-in", self.stand_in or "none")
        yield from _groups()
        if self.stand_in != "numpy":
            why, version = self._torch()
            yield Finding(TORCH_NAME, version if not why else f"{NONE}{why}")

    def _no_torch(self) -> str:
        if self.stand_in == "numpy":
            return ""
        return self._torch()[0] if self.no_torch is None else self.no_torch

    def _torch(self) -> tuple[str, str]:
        """Why jobs have none, and its version, as a job would find it."""
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        try:
            said = subprocess.run(
                [self.job_python, "-c", TORCH],
                capture_output=True, text=True, check=False, timeout=35 * PATIENCE,
                env=inherited | self.environment(),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self.job_python} does not answer: {error}", ""
        if said.returncode:
            last = (said.stderr.strip().splitlines() or [f"exit code {said.returncode}"])[-1]
            return f"{self.job_python} has no PyTorch: {last}", ""
        words = said.stdout.strip()
        if not self.stand_in and not int(words.split()[-1]):
            return f"the PyTorch of {self.job_python} sees no GPU: {words}", ""
        return "", words


def cuda_words(version: int) -> str:
    """13000 is 13.0."""
    return f"{version // 1000}.{version % 1000 // 10}"


def no_account(uid: int | None = None) -> str:
    """Why this user cannot log in to a master on this host; empty: he can."""
    try:
        host_account(os.geteuid() if uid is None else uid)
    except PermissionDenied as error:
        return f"{error}: dlq takes no jobs from it"
    return ""


def no_shim() -> str:
    """Why an agent cannot start jobs here; empty: it can."""
    try:
        ensure_shim()
    except ShimMissing as error:
        return " ".join(str(error).split())
    return ""


def hidden_gpus(devices: Sequence[Device], visible: str | None) -> str:
    """Why not all GPUs are for us, by the variable; the agent gives out all that NVML lists."""
    if visible is None:
        return ""
    named = [word.strip() for word in visible.split(",") if word.strip()]
    lacking = [
        str(device.index)
        for device in devices
        if not any(word == str(device.index) or device.uuid.startswith(word) for word in named)
    ]
    words = f"{VISIBLE} is {visible!r}, and the agent would give out GPU {', '.join(lacking)} too"
    return f"{words}: unset it if all GPUs here are for this run" if lacking else ""


def _groups() -> Iterator[Finding]:
    """Control groups, as an agent of this user finds them."""
    tree = tried(detect(f"proof-{os.getpid()}"))
    yield Finding("control groups", f"{tree.mode} ({tree.why})")
    yield Finding("jobs open their own GPUs only", tree.devices_open or "by control group")
    tree.remove()


def _no_nvml() -> str:
    try:
        devices = NvmlDevices()
    except DevicesUnavailable as error:
        return str(error)
    if not devices.devices():
        return "NVML lists no GPU"
    return hidden_gpus(devices.devices(), os.environ.get(VISIBLE))


def _no_smi() -> str:
    return "" if shutil.which("nvidia-smi") else "there is no nvidia-smi in PATH"


def _no_cuda() -> str:
    try:
        count = Driver().count()
    except NoCuda as error:
        return f"there is no CUDA driver: {error}"
    except CudaError as error:  # such as 802, 803 or 999: the driver is not ready, or does not fit
        return f"CUDA's driver does not start: {error}"
    return "" if count else "CUDA's driver lists no GPU"


def interpreter(named: str, stand_in: str) -> str:
    """The interpreter of jobs: the named one, or that of the host; of `numpy`, the one that runs
    us.
    """
    if stand_in == "numpy":
        return sys.executable
    return named or shutil.which("python3") or "/usr/bin/python3"
