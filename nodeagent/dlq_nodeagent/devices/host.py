"""The host's own facts, read once at start."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        agent_version=agent_version,
    )
