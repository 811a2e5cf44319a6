"""Asks a real Slurm what it makes of sbatch's options: tests/data/slurm_submissions.json.

    PYTHONPATH=tests python tests/support/slurm_submissions.py

Of each line of options: the exit code, stderr, the facts of `scontrol show job`, and the SLURM_*
variables of the batch script. The lines are those of the file; write a new one there with null.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from support.ports import free_ports
from support.real_slurm import RealSlurm

RECORD = Path(__file__).parents[1] / "data" / "slurm_submissions.json"
_FACTS = ("NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "NtasksPerN:B:S:C", "TimeLimit", "QOS",
          "MinMemoryNode", "MinMemoryCPU", "MinCPUsNode", "TresPerJob", "TresPerNode",
          "TresPerTask", "TresPerSocket", "Dependency", "Requeue", "Nice", "OverSubscribe",
          "StartTime", "EligibleTime", "JobState", "Reason", "NodeList", "CpusPerTres",
          "MemPerTres", "NtasksPerTRES")  # fmt: skip


def record(slurm: RealSlurm, words: str, folder: Path) -> dict[str, Any]:
    """Submit one script with these options, and wait for its end where it can run."""
    output = folder / "env"
    output.unlink(missing_ok=True)
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\nenv | grep -e ^SLURM -e ^CUDA_V -e ^TMPDIR -e ^PWD | sort\n")
    call = ["sbatch", "-o", str(output), *words.split(), str(script)]
    if ":" in words.split():
        call = ["sbatch", *words.split(), str(script)]
    said = subprocess.run(call, capture_output=True, text=True, timeout=30.0, cwd=folder)
    made: dict[str, Any] = {"code": said.returncode, "out": said.stdout, "err": said.stderr}
    number = re.search(r"\d+", said.stdout)
    if said.returncode or number is None or "test-only" in words:
        return made
    seen = slurm.said("scontrol", "-o", "show", "job", number[0]).splitlines()[0]
    end_s = time.monotonic() + 8.0
    while time.monotonic() < end_s and "JobState=COMPLETED" not in seen:
        time.sleep(0.2)
        seen = slurm.said("scontrol", "-o", "show", "job", number[0]).splitlines()[-1]
        if "JobState=PENDING" in seen and re.search(r"Reason=(?!None|Priority|Resources)", seen):
            break
    slurm.said("scancel", number[0])
    facts = dict(re.findall(r"(\S+?)=(\S*)", seen))
    made["job"] = {name: facts[name] for name in _FACTS if name in facts}
    if output.exists():
        lines = output.read_text(errors="replace").splitlines()
        made["env"] = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
        if others := [line for line in lines if not re.match(r"[A-Z_]+=", line)]:
            made["output"] = others
    return made


def main() -> None:
    """Record all lines."""
    made = {}
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        root = Path(name)
        (root / "jobs").mkdir()
        (root / "slurm").mkdir()
        with RealSlurm(root / "slurm", free_ports(3)[0], nodes=2, gpu_type="h100") as slurm:
            for words in json.loads(RECORD.read_text())["lines"]:
                made[words] = record(slurm, words, root / "jobs")
        text = json.dumps(made, indent=1, sort_keys=True).replace(name, "/slurm")
    origin = "sbatch of Debian's slurm-wlm 22.05.8 on two nodes of 64 CPUs and eight h100 each"
    whole = {"origin": f"{origin}; tests/support/slurm_submissions.py", "lines": json.loads(text)}
    RECORD.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
