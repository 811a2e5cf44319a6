"""A GPU as the agent sees it, from look to look, and its use by `nvidia-smi` beside it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.gpu.check import ClaimBroken, CouldNot
from benchmarks.gpu.jobs.notes import now_s
from benchmarks.gpu.machine import PATIENCE
from dlq_nodeagent.devices.nvml import NvmlDevices
from dlq_nodeagent.devices.port import RELEASED_MEMORY_BYTES, Device, DeviceUsage

LOOK_S = 0.02
GPU = "--query-gpu"  # of nvidia-smi


@dataclass
class Watched:
    """The first GPU of this machine, by the agent's own code."""

    devices: NvmlDevices = field(default_factory=NvmlDevices)

    @property
    def first(self) -> Device:
        """Checks work on this one."""
        return self.devices.devices()[0]

    def usage(self) -> DeviceUsage:
        """Its use at this instant."""
        return self.devices.usage(self.first.uuid)

    def is_free(self) -> bool:
        """By the rule of the agent (docs/running/gpu-health.md)."""
        return self.usage().released_below(RELEASED_MEMORY_BYTES)

    def until_free(self, patience_s: float) -> float:
        """The instant when it is first seen free. Raises ClaimBroken after `patience_s`."""
        wait(self.is_free, patience_s, f"the GPU is free; {self.usage().words}")
        return now_s()


def wait(seen: Callable[[], object], patience_s: float, what: str, every_s: float = LOOK_S) -> None:
    """Return as soon as it is seen. Raises ClaimBroken after `patience_s`."""
    patience_s *= PATIENCE
    end_s = time.monotonic() + patience_s
    while not seen():
        if time.monotonic() > end_s:
            raise ClaimBroken(f"waited {patience_s:g} s until {what}")
        time.sleep(every_s)


def smi(fields: Sequence[str], switch: str = GPU) -> list[list[str]]:
    """The words of nvidia-smi on each GPU, one for each field; without units. CouldNot where it
    refuses.
    """
    said = subprocess.run(
        ["nvidia-smi", f"{switch}={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    if said.returncode:
        raise CouldNot(f"nvidia-smi: {(said.stdout + said.stderr).strip()}")
    return [[word.strip() for word in line.split(",")] for line in said.stdout.splitlines()]


def number(word: str) -> float | None:
    """The number that nvidia-smi prints, or its Yes or No; None where it has none to tell, such as
    [N/A].
    """
    try:
        return {"yes": 1.0, "no": 0.0}.get(word.lower()) if word.isalpha() else float(word)
    except ValueError:
        return None
