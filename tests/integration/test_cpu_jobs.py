"""Jobs without GPUs on real daemons: their cores by the kernel, beside GPUs, and after restarts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.devices.cores import host_cores
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.getuid() != 0, reason="control groups need root here"),
    pytest.mark.skipif(len(host_cores()) < 2, reason="one core for each kind is needed"),
]

_NODES = {
    "gpu1": 'devices = "fake:2xH100-80GB"\njob_cpus = 1\n',
    "cpu1": 'devices = "none"\ncpus = 8\nmemory = "16GiB"\njob_cpus = 8\n',
}
_CORES = "grep Cpus_allowed_list /proc/self/status"


class MixedDaemons(Daemons):
    """One node with GPUs and one core for jobs without, and one that claims eight such cores."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        path = self.root / f"{name}.toml"
        text = path.read_text().replace('devices = "fake:8xH100-80GB"\n', _NODES[name])
        path.write_text(text)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = Path(tmp_path_factory.mktemp("cpu"))
    root.chmod(0o755)
    with MixedDaemons(root, ("gpu1", "cpu1")).up() as up:
        yield up


def ran(daemons: Daemons, *arguments: str, shell: str) -> str:
    """What a job of these flags writes."""
    job = daemons.said("submit", "--parsable", *arguments, "--", "/bin/sh", "-c", shell).strip()
    assert daemons.dlq("wait", job).code == 0, daemons.said("show", job)
    return daemons.said("logs", job)


def _numbers(listed: str) -> set[int]:
    """`0-2,5` as numbers."""
    ends = [part.split("-") for part in listed.split(",")]
    return {number for each in ends for number in range(int(each[0]), int(each[-1]) + 1)}


def test_each_kind_runs_on_cores_of_its_own(daemons: Daemons) -> None:
    host = host_cores()
    job = ran(daemons, "--cores", "1", "-w", "gpu1", shell=_CORES)
    other = ran(daemons, "-G", "1", shell=_CORES)
    assert job.split()[-1] == str(host[-1])
    assert _numbers(other.split()[-1]) == set(host[:-1])


def test_a_host_without_gpus_serves_and_gives_memory_by_cores(daemons: Daemons) -> None:
    shell = "echo $DLQ_CPUS_PER_NODE $CUDA_VISIBLE_DEVICES.; cat /sys/fs/cgroup/memory$(grep -m1 "
    shell += ":memory: /proc/self/cgroup | cut -d: -f3)/memory.limit_in_bytes 2>/dev/null || "
    shell += "cat /sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3)/memory.max"
    told = ran(daemons, "-G", "0", "--cpus", "1", "--mem", "5GiB", "-w", "cpu1", shell=shell)
    assert told.split() == ["3", ".", str(5 << 30)]  # 2 GiB a core: three carry it


def test_what_no_node_holds_is_refused_with_its_numbers(daemons: Daemons) -> None:
    refused = daemons.dlq("submit", "-G", "0", "--cpus", "80", "--", "true")
    assert refused.code != 0
    assert "asks for 80 cores, the largest node gives 8 to CPU jobs" in refused.err


def test_lists_show_cores(daemons: Daemons) -> None:
    job = daemons.said("submit", "--parsable", "--cores", "6", "--", "sleep", "600").strip()
    wait_until(lambda: "running" in daemons.said("status", job), what="it runs", timeout_s=60.0)
    assert "8 cores" not in daemons.said("show", job)
    assert "no GPU, 6 cores" in daemons.said("show", job)
    assert "2 of 8 cores free, 2GiB each" in daemons.said("nodes", "cpu1")
    told = json.loads(daemons.said("queues", "--json"))
    assert told["cluster"]["core_count"] == 9
    daemons.said("cancel", job)
    daemons.dlq("wait", job)


def test_a_restart_of_agent_and_master_leaves_it_alone(daemons: Daemons) -> None:
    job = daemons.said("submit", "--parsable", "--cores", "8", "--", "sleep", "600").strip()
    wait_until(lambda: "running" in daemons.said("status", job), what="it runs", timeout_s=60.0)
    for name in ("cpu1", "master"):
        daemons.kill(name)
        daemons.start(name)
        daemons.wait_for(name)
    wait_until(lambda: "running" in daemons.said("status", job), what="it goes on", timeout_s=60.0)
    shown = json.loads(daemons.said("show", job, "--json"))
    text = json.dumps(shown)
    assert '"held_core_count": 8' in text
    assert '"attempt_count": 1' in text
    daemons.said("cancel", job)
    daemons.dlq("wait", job)
