"""The cores of a node, divided: some for jobs without GPUs, the others for its GPUs.

The master gives out the first by number. Number 0 is the last core of the host. So another
division after a restart moves no number that stays. The same numbers lead to the same cores at
every start of the agent, as long as the host has the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlq_common.errors import ConfigError
from dlq_common.start_causes import StartCause
from dlq_nodeagent.model.mistakes import LaunchRefused

_TOPOLOGY = Path("/sys/devices/system/cpu")
BY_GPUS = -1  # job_cpus: as cpus_per_gpu says
_FEW = 4  # of a host without GPUs with at least so many cores, one is for the system


@dataclass(frozen=True, slots=True)
class JobCores:
    """The cores for jobs without GPUs, and the memory that each of them brings to its job."""

    count: int = 0
    memory_bytes: int = 0
    host: tuple[int, ...] = ()
    """All cores of the host as the kernel numbers them; empty: jobs are kept on none."""

    def of(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The kernel's numbers of these cores. Raises LaunchRefused for one that is not for jobs
        without GPUs.
        """
        wanted = tuple(numbers)
        wrong = [number for number in wanted if not 0 <= number < self.count]
        if wrong:
            raise LaunchRefused(
                f"this node gives {self.count} cores to jobs without GPUs: there is no number "
                f"{wrong[0]}",
                StartCause.DEVICES,
            )
        return tuple(sorted(self.host[-1 - number] for number in wanted)) if self.host else ()

    @property
    def of_gpus(self) -> tuple[int, ...]:
        """The cores of jobs with GPUs; empty: every core, as none is kept from them."""
        return tuple(sorted(self.host[: -self.count])) if self.host and self.count else ()


NO_CORES = JobCores()


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How the configuration divides a host; 0 cores or bytes of it: as many as it has."""

    cpus: int = 0
    memory_bytes: int = 0
    cpus_per_gpu: int = 0
    job_cpus: int = BY_GPUS


def divide(wish: Division, host: tuple[int, ...], memory_bytes: int, gpus: int) -> JobCores:
    """The cores for jobs without GPUs, on a host with these. Raises ConfigError for a wish that
    leaves the GPUs no core, or is more than there is.
    """
    total = wish.cpus or len(host)
    count = _by_gpus(wish, total, gpus) if wish.job_cpus == BY_GPUS else wish.job_cpus
    if count > total:
        raise ConfigError(
            f"node.job_cpus: {count} cores for jobs without GPUs, and the node has {total}",
            key="node.job_cpus",
        )
    if gpus and count == total:
        raise ConfigError(
            f"node.job_cpus: {count} cores for jobs without GPUs leave none for {gpus} GPUs",
            key="node.job_cpus",
        )
    each = (wish.memory_bytes or memory_bytes) // total if count else 0
    return JobCores(count, each, () if wish.cpus not in (0, len(host)) else host)


def _by_gpus(wish: Division, total: int, gpus: int) -> int:
    if not gpus:
        return total - 1 if total >= _FEW else total
    return max(0, total - gpus * wish.cpus_per_gpu) if wish.cpus_per_gpu else 0


def host_cores(cpus: Iterable[int] | None = None, topology: Path = _TOPOLOGY) -> tuple[int, ...]:
    """The cores that the agent may use, threads of one physical core side by side. So a division
    cuts no physical core in two, unless the numbers themselves do.
    """
    known = sorted(os.sched_getaffinity(0) if cpus is None else cpus)
    first: Mapping[int, int] = {cpu: _first_thread(cpu, topology) for cpu in known}
    return tuple(sorted(known, key=lambda cpu: (first[cpu], cpu)))


def _first_thread(cpu: int, topology: Path) -> int:
    try:
        text = (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return cpu
    numbers = re.findall(r"[0-9]+", text)
    return int(numbers[0]) if numbers else cpu
