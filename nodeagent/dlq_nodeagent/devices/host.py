"""The host's own facts, read once at start, and its memory."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MEMINFO = "/proc/meminfo"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts of a machine for the master; `boot_id` tells one boot from the next."""

    hostname: str
    boot_id: str
    cpu_count: int
    memory_bytes: int
    agent_version: str


def read_host_facts(*, agent_version: str) -> HostFacts:
    """Read the facts of the machine the agent runs on.

    CPUs are those the agent may be scheduled on, which a cpuset can make fewer than the machine
    has.
    """
    return HostFacts(
        hostname=platform.node(),
        boot_id=_BOOT_ID.read_text().strip(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=meminfo_bytes("MemTotal"),
        agent_version=agent_version,
    )


def meminfo_bytes(name: str, path: str = MEMINFO) -> int:
    """A size by its name in /proc/meminfo, which tells the limit of a system container too; 0: the
    kernel does not tell it.
    """
    with open(path) as file:
        for line in file:
            said, _, rest = line.partition(":")
            if said == name:
                return int(rest.split()[0]) * 1024
    return 0
