"""The memory of an idle agent, beside the floor of its libraries.

    python -m benchmarks.node.agent_memory [--json]

The floor is a process of Python with asyncio, grpc.aio, the messages of the agent's line, and one
connected channel to the same master. It has no module of ours beyond the messages, and no OpenSSL,
as the agent. Both are looked at after a rest. Anonymous memory is their own; all other pages are
of files that the kernel may drop.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq_client.line.identity import load_identity

REST_S = 10.0
GOAL_MIB = 35.0
BARE = """
import os, sys
os.environ["GRPC_VERBOSITY"] = "NONE"
sys.modules.update(dict.fromkeys(("ssl", "_ssl", "_hashlib")))
import asyncio
from pathlib import Path
import grpc
from grpc import aio
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub

async def main(address, ca, key, certificate):
    read = [Path(one).read_bytes() for one in (ca, key, certificate)]
    options = [("grpc.ssl_target_name_override", "dlq-master")]
    async with aio.secure_channel(address, grpc.ssl_channel_credentials(*read), options) as channel:
        await channel.channel_ready()
        stub = AgentServiceStub(channel)
        print("ready", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident, and of that anonymous."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kib = {
        name: int(value.split()[0]) for name, _, value in (it.partition(":") for it in lines[1:])
    }
    return kib["Rss"] / 1024, kib["Anonymous"] / 1024


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    report = Report.begin("node.agent_memory", parser)
    with tempfile.TemporaryDirectory() as directory, Living(Path(directory)) as living:
        agent = living.start_agent("n0", "fake:8xH100-80GB")
        living.run("dlq", "login")
        bare = _bare(living, Path(directory))
        time.sleep(REST_S)
        for name, pid, goal in (("agent", agent.pid, GOAL_MIB), ("floor", bare.pid, None)):
            resident, own = memory_mib(pid)
            report.figure(f"{name}, resident", resident, "MiB", at_most=goal)
            report.figure(f"{name}, anonymous", own, "MiB")
        bare.kill()
        bare.wait()
    report.end()


def _bare(living: Living, directory: Path) -> subprocess.Popen[bytes]:
    identity = load_identity(living.home)
    assert identity is not None
    parts = {"ca": identity.ca, "key": identity.key, "certificate": identity.certificate}
    for name, content in parts.items():
        (directory / name).write_bytes(content)
    words = [identity.address, *(str(directory / name) for name in parts)]
    bare = subprocess.Popen([sys.executable, "-c", BARE, *words], stdout=subprocess.PIPE)
    assert bare.stdout is not None
    assert bare.stdout.readline() == b"ready\n"
    return bare


if __name__ == "__main__":
    main()
