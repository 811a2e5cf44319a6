"""Where the memory of an idle master goes: its libraries, its own modules, and the rest.

    python -m benchmarks.live.resident [--json]

A fresh interpreter imports the libraries of the master one after another, and then the modules of
the master. The growth of its resident memory is told after each. Shared libraries of the system
count, and so do pages of files, as they do in `ps`. A real master that has served nobody comes
last. It has unmapped the code that only its start ran, which the stages have not.
Goal (issue 21): 60 MiB for an idle master.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.live.restart import resident_mib
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq_common.daemon.resident import SETTLED_S

GOAL_MIB: Final = 60.0
EMPTY_S: Final = SETTLED_S + 5.0  # the master has given back what its start needed
# A library that several of these need is counted with the first of them.
STAGES: Final = {
    "the bare interpreter": "pass",
    "asyncio, ssl, json, logging, sqlite3": "import asyncio, ssl, json, logging, sqlite3",
    "protobuf": "import google.protobuf.message",
    "grpcio, with a server that has run": (
        "import asyncio, grpc.aio\n"
        "async def run():\n"
        "    server = grpc.aio.server()\n"
        "    server.add_insecure_port('127.0.0.1:0')\n"
        "    await server.start()\n"
        "    await server.stop(None)\n"
        "asyncio.run(run())"
    ),
    "cryptography": (
        "from cryptography import x509\n"
        "from cryptography.hazmat.primitives import hashes, serialization\n"
        "from cryptography.hazmat.primitives.asymmetric import ec"
    ),
    "APScheduler": "import apscheduler.schedulers.asyncio",
    "click, cattrs, the state of health": "import click, cattrs, grpc_health.v1.health",
}
OWN: Final = "import dlq_master.app, dlq_master.serving\n" + (
    "from dlq_master.control.loop.preload import preload; preload()"
)
# Each line of the input is the source of one stage; each line of the output its KiB.
STEPS: Final = """
import ast, sys
for line in sys.stdin:
    exec(ast.literal_eval(line), {})
    with open("/proc/self/status") as status:
        print(status.read().split("VmRSS:")[1].split()[0], flush=True)
"""


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    report = Report.begin("live.resident", parser)
    grown = _grown([*STAGES.values(), OWN])
    for name, mib in zip(STAGES, grown, strict=False):
        report.figure(name, mib, "MiB")
    libraries_mib = sum(grown[:-1])
    report.figure(
        "interpreter and libraries, with all of their code", libraries_mib, "MiB", at_most=GOAL_MIB
    )
    report.figure("modules of the master", grown[-1], "MiB")
    with tempfile.TemporaryDirectory() as place, Living(Path(place)) as living:
        time.sleep(EMPTY_S)
        idle_mib = resident_mib(living.master.pid)
    report.figure("an idle master", idle_mib, "MiB", at_most=GOAL_MIB)
    report.end()


def _grown(stages: list[str]) -> list[float]:
    """Resident MiB that each stage adds, in a fresh interpreter."""
    lines = "".join(f"{stage!r}\n" for stage in stages)
    done = subprocess.run(
        [sys.executable, "-c", STEPS], input=lines, stdout=subprocess.PIPE, text=True, check=True
    )
    told = [int(line) / 1024 for line in done.stdout.split()]
    return [after - before for before, after in zip([0.0, *told], told, strict=False)]


if __name__ == "__main__":
    main()
