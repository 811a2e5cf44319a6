"""A job that looks which GPUs it can reach, as it is told to and as it is not.

    python -m benchmarks.gpu.jobs.look NOTES

Notes: `saw` with the uuids that CUDA gives by the job's own variables. `pried` has the same after
the variables are gone, and the device files that could be opened. CUDA is asked in processes of
their own, as it reads its variables once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.jobs.cuda import CudaError, Driver
from benchmarks.gpu.jobs.notes import Notes

VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


def main() -> None:
    """Look twice."""
    if sys.argv[1] == "--ask":
        print(json.dumps(_asked()))
        return
    notes = Notes(sys.argv[1])
    notes.take("saw", **_told(dict(os.environ)))
    bare = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    notes.take("pried", **_told(bare), opened=_opened())


def _told(environment: dict[str, str]) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.gpu.jobs.look", "--ask"]
    said = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=30
    )
    if said.returncode:
        return {"uuids": [], "error": f"exit code {said.returncode}"}
    found: dict[str, object] = json.loads(said.stdout)
    return found


def _asked() -> dict[str, object]:
    try:
        return {"uuids": Driver().uuids(), "error": ""}
    except CudaError as error:
        return {"uuids": [], "error": str(error)}


def _opened() -> list[str]:
    """GPUs whose device file this process may open."""
    found = []
    for path in sorted(Path("/dev").glob("nvidia[0-9]*")):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            continue
        found.append(path.name)
    return found


if __name__ == "__main__":
    main()
