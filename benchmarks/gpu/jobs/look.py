"""A job that looks which GPUs it can reach, as it is told to and as it is not.

    python -m benchmarks.gpu.jobs.look NOTES

Notes: `saw` with the uuids that CUDA gives by the job's own variables, or CUDA's error. `pried` has
the same after the variables are gone, the device files that could be opened, and the errors of the
others. CUDA is asked in processes of their own, as it reads its variables once.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.jobs.cuda import CudaError, Driver, NoCuda
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
    opened, refused = _opened()
    notes.take("pried", **_told(bare), opened=opened, refused=refused)


def _told(environment: dict[str, str]) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.gpu.jobs.look", "--ask"]
    said = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=30
    )
    if said.returncode:
        return {"uuids": [], "code": None, "error": f"exit code {said.returncode}"}
    found: dict[str, object] = json.loads(said.stdout)
    return found


def _asked() -> dict[str, object]:
    try:
        driver = Driver()
        driver.call("cuInit", 0)
        return {"uuids": driver.uuids(), "code": 0, "error": ""}
    except CudaError as error:
        return {"uuids": [], "code": error.code, "error": str(error)}
    except NoCuda as error:
        return {"uuids": [], "code": None, "error": str(error)}


def _opened() -> tuple[list[str], dict[str, str]]:
    """GPUs whose device file this process may open, and the errors of those that it may not."""
    found, refused = [], {}
    for path in sorted(Path("/dev").glob("nvidia[0-9]*")):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            refused[path.name] = errno.errorcode.get(error.errno or 0, str(error))
            continue
        found.append(path.name)
    return found, refused


if __name__ == "__main__":
    main()
