"""A host with a fake GPU: C fakes of NVML, of CUDA's driver and of NCCL, and a fake nvidia-smi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.nvml_box import HERE, NvmlBox, compile_fake_nvml
from support.watched_programs import PROGRAMS

ROOT = HERE.parents[1]
UUID = "GPU-1f0c3c2a-58b1-4d6e-9a77-0123456789ab"
LIBRARY = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
STUB = ["-w", "-Wl,-soname,libnccl.so.2"]
SMI = '#!/bin/sh\nexec {python} -S -E {program} "$@"\n'


def compile_fakes(directory: Path, *flags: str) -> Path:
    """All fakes in one directory, for LD_LIBRARY_PATH and PATH."""
    compile_fake_nvml(directory, *flags)
    cuda, nccl = directory / "libcuda.so.1", directory / "libnccl.so.2"
    subprocess.run([*LIBRARY, *flags, "-o", cuda, HERE / "fake_cuda.c"], check=True)
    subprocess.run([*LIBRARY, *STUB, "-o", nccl, PROGRAMS / "stub_nccl.c"], check=True)
    smi = directory / "nvidia-smi"
    smi.write_text(SMI.format(python=sys.executable, program=HERE / "fake_smi.py"))
    smi.chmod(0o755)
    return directory


def compile_check_fakes(directory: Path) -> Path:
    """Fakes of NVML, of CUDA's driver, of cuBLAS and of NCCL that compute and send."""
    compile_fake_nvml(directory)
    for name, source in (
        ("libcuda.so.1", "fake_cuda.c"),
        ("libcublas.so.12", "fake_cublas.c"),
        ("libnccl.so.2", "fake_nccl.c"),
    ):
        subprocess.run([*LIBRARY, "-o", directory / name, HERE / source, "-lm"], check=True)
    return directory


@dataclass
class GpuBox:
    """One H100 with everything told; `nvml` changes it."""

    nvml: NvmlBox
    root: Path
    lies: str = ""

    @classmethod
    def at(cls, fakes: Path, root: Path) -> GpuBox:
        """A new one."""
        box = cls(NvmlBox(fakes, root / "machine"), root)
        (root / "cuda").mkdir()
        box.nvml.add_gpu(UUID)
        for line in ("cuda|13000", "temperature|0|34", "power|0|70000", "clock|0|345", "mig|0|0"):
            box.nvml.say(line)
        return box

    def environment(self) -> dict[str, str]:
        """Of programs on this host."""
        return {
            **os.environ,
            "PATH": f"{self.nvml.library}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(self.nvml.library),
            "FAKE_NVML": str(self.nvml.facts),
            "FAKE_CUDA": str(self.root / "cuda"),
            "FAKE_SMI_LIE": self.lies,
            "GPU_PATIENCE": "4",  # tests share their host
            "PYTHONPATH": str(ROOT / "tests"),
        }

    def lie(self, field: str, value: str) -> None:
        """Let nvidia-smi print this in a field, whatever is so."""
        self.lies = ";".join(filter(None, [self.lies, f"{field}={value}"]))

    @staticmethod
    def findings(told: dict[str, Any]) -> dict[str, Any]:
        """The values of one check's findings, by their names."""
        return {one["name"]: one["value"] for one in told["findings"]}

    @property
    def out(self) -> Path:
        """The directory of results."""
        return self.root / "out"

    def run(
        self,
        *checks: str,
        free_below: str = "",
        spoiled: str = "",
        stand_in: str = "numpy",
        python: Path = Path(sys.executable),
    ) -> tuple[int, dict[str, Any], str]:
        """`make gpu` here with the stand-in: its exit code, its results by check, its words.

        `free_below` spoils the agent's proof that a GPU is free, and `spoiled` names a fault of the
        stand-in. `python` runs the jobs of another stand-in.
        """
        out = self.out
        words = ["--stand-in", stand_in, "--out", str(out), "--job-python", str(python)]
        faults = {"GPU_FREE_BELOW": free_below, "GPU_SPOILED": spoiled}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", *checks, *words],
            cwd=ROOT, env=self.environment() | faults,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        told = json.loads((out / "proof.json").read_text())
        return done.returncode, {one["check"]: one for one in told["checks"]}, done.stdout

    def run_on_one_site(self, *checks: str) -> dict[str, str]:
        """The same checks one after another, with one master and one agent: each with its outcome.
        It takes half the time, and shows no limits.
        """
        done = subprocess.run(
            [sys.executable, HERE / "gpu_one_site.py", self.root, *checks],
            cwd=ROOT, env=self.environment() | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
        return found or {"error": done.stderr}
