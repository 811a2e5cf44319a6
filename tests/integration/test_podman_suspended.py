"""A rank in a container leaves its GPU without a save, and comes back.

Podman is real. The fakes of NVML and of CUDA's driver know processes by the numbers of the host.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import ExitWhy, Handle
from dlq_nodeagent.suspension import checkpoints
from dlq_nodeagent.suspension.checkpoints import DriverCheckpoints, ProcessState
from dlq_nodeagent.suspension.port import MoveOrder, NotOnRecord, SuspendConfig
from dlq_nodeagent.suspension.suspender import HostSuspender
from support.gpu_box import UUID, compile_fakes
from support.nvml_box import NvmlBox, ProbedDevices
from support.podman_box import PodmanBox, PodmanStore, needs_podman, podman_box, podman_store
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, needs_podman]

GIB = 1 << 30
# Both shells use the GPU, by the fakes; what they start does not.
FAMILY = "(while :; do sleep 0.1; done) & echo up; while :; do echo on; sleep 0.05; done"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


@pytest.fixture
def box(tmp_path: Path, store: PodmanStore) -> Iterator[PodmanBox]:
    with podman_box(tmp_path / "state", store) as made:
        yield made


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def suspender(
    fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostSuspender]:
    nvml = NvmlBox(fakes, tmp_path / "machine")
    nvml.add_gpu(UUID)
    (tmp_path / "cuda").mkdir()
    monkeypatch.setenv("FAKE_CUDA", str(tmp_path / "cuda"))
    monkeypatch.setenv("FAKE_NVML", str(nvml.facts))
    monkeypatch.setattr(checkpoints, "LIBRARY", str(fakes / "libcuda.so.1"))
    devices = ProbedDevices(nvml.start_probe())
    yield HostSuspender(
        clock=SteadyClock(), config=SuspendConfig(memory=Bytes(8 * GIB), spare=Bytes(0)),
        devices=devices, free_below_bytes=GIB, checkpoints=DriverCheckpoints(),
    )  # fmt: skip
    devices.close()


def shells(box: PodmanBox, handle: Handle) -> set[int]:
    """Its shells, as the host numbers them, and what they have just forked."""
    found = set()
    for pid in box.runtime.standstill(handle).pids():
        with suppress(OSError):  # a sleep that has just ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[-2:] == [FAMILY.encode(), b""]:
                found.add(pid)
    return found


def out(box: PodmanBox, suspender: HostSuspender, at: Path) -> tuple[Handle, MoveOrder]:
    """A container whose shells are off their GPU."""
    handle = box.sh(FAMILY)
    wait_until(lambda: b"on" in box.log(handle), what="it runs")
    before: set[int] = set()
    stay: set[int] = set()

    def both() -> bool:
        nonlocal before, stay
        now = shells(box, handle)
        before, stay = now, before & now
        return len(stay) == 2

    wait_until(both, what="both shells run")
    for pid in stay:
        (at / "cuda" / str(pid)).write_text(f"hold|0|{GIB}|0|50|0\n")
    assert len(suspender.devices.usage(UUID).processes) == 2
    still = box.runtime.standstill(handle)
    order = MoveOrder(key=RankKey("7", 1, 0), uuids=(UUID,), still=still)
    with pytest.raises(NotOnRecord) as found:
        suspender.suspend(order)
    assert set(found.value.pids) == stay
    order = replace(order, pids=found.value.pids, nbytes=found.value.nbytes)
    assert suspender.suspend(order).nbytes == 2 * GIB
    return handle, order


def test_a_container_stands_still_off_its_gpu_and_comes_back(
    box: PodmanBox, suspender: HostSuspender, tmp_path: Path
) -> None:
    handle, order = out(box, suspender, tmp_path)
    assert suspender.devices.usage(UUID).processes == ()
    driver = suspender.checkpoints
    assert driver is not None
    assert {driver.state(pid) for pid in order.pids} == {ProcessState.CHECKPOINTED}
    time.sleep(0.2)  # conmon may have had some of its output
    said = len(box.log(handle))
    time.sleep(0.5)  # proves a negative: it says something every 50 ms where it runs
    assert len(box.log(handle)) == said
    box.restart_agent()
    suspender.resume(replace(order, still=box.runtime.standstill(handle)))
    assert {driver.state(pid) for pid in order.pids} == {ProcessState.RUNNING}
    wait_until(lambda: len(box.log(handle)) > said, what="it goes on")
    assert shells(box, handle) >= set(order.pids)


def test_a_container_that_is_off_its_gpu_ends_by_a_kill(
    box: PodmanBox, suspender: HostSuspender, tmp_path: Path
) -> None:
    handle, _ = out(box, suspender, tmp_path)
    box.runtime.kill(handle, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.KILLED, signal.SIGKILL)
    wait_until(lambda: box.store.containers() == [], what="its container is gone")
    assert box.groups_left(handle) == set()
