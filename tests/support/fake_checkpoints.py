"""A driver that keeps states of processes, and refuses the call that a test names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.devices.choose import NoDevices
from dlq_nodeagent.devices.port import (
    Device,
    DeviceProcess,
    DeviceUsage,
)
from dlq_nodeagent.model.port import NotStill, Standstill
from dlq_nodeagent.suspension.checkpoints import DriverFault, ProcessState

GIB = 1 << 30
UUIDS = ("GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002")


class Died(BaseException):
    """The agent is gone in the middle of a move."""


@dataclass
class FakeCheckpoints:
    """Processes 11, 12, ... with `nbytes` each on the first GPU; `refuses` is (call, pid)."""

    remaps: bool = True
    states: dict[int, ProcessState] = field(default_factory=dict)
    refuses: set[tuple[str, int]] = field(default_factory=set)
    dies_after: int = 0
    """At which call the agent dies, just after it; 0: at none."""
    calls: list[str] = field(default_factory=list)
    onto: Sequence[tuple[str, str]] = ()
    silent: dict[int, int] = field(default_factory=dict)
    """Of which processes it says nothing, and how often it is asked in vain."""

    def state(self, pid: int) -> ProcessState | None:
        if self.silent.get(pid, 0):
            self.silent[pid] -= 1
            return None
        return self.states.get(pid)

    def lock(self, pid: int, timeout_s: float) -> None:
        self._step("lock", pid, ProcessState.RUNNING, ProcessState.LOCKED)

    def checkpoint(self, pid: int) -> None:
        self._step("checkpoint", pid, ProcessState.LOCKED, ProcessState.CHECKPOINTED)

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]]) -> None:
        self.onto = pairs
        self._step("restore", pid, ProcessState.CHECKPOINTED, ProcessState.LOCKED)

    def unlock(self, pid: int) -> None:
        self._step("unlock", pid, ProcessState.LOCKED, ProcessState.RUNNING)

    def passed(self, call: str) -> None:
        """Something was done; the agent may die now."""
        self.calls.append(call)
        if len(self.calls) == self.dies_after:
            raise Died

    def _step(self, call: str, pid: int, before: ProcessState, after: ProcessState) -> None:
        if (call, pid) in self.refuses:
            raise DriverFault(call, pid, 999)
        assert self.states[pid] is before, f"{call} of a process that is {self.states[pid].name}"
        self.states[pid] = after
        self.passed(f"{call} {pid}")


@dataclass
class FakeStandstill(Standstill):
    """Some pids; whether they stand still."""

    driver: FakeCheckpoints
    known: frozenset[int]
    frozen: bool = False
    refuses: bool = False
    limit_left: int | None = None
    may_open: tuple[OnlyMinors, ...] = ()

    def pids(self) -> frozenset[int]:
        return self.known

    def freeze(self) -> None:
        if self.refuses:
            raise NotStill("the kernel refuses")
        self.frozen = True
        self.driver.passed("freeze")

    def thaw(self) -> None:
        self.frozen = False

    def room(self) -> int | None:
        return self.limit_left

    def open_only(self, rules: Sequence[OnlyMinors]) -> None:
        self.may_open = tuple(rules)


@dataclass
class HeldDevices(NoDevices):
    """GPUs on which those processes of a driver are that have not left. `lingers`: bytes that stay
    on the first GPU.
    """

    driver: FakeCheckpoints
    nbytes: int = GIB
    lingers: int = 0
    strangers: tuple[int, ...] = ()
    mps: tuple[int, ...] = ()

    def devices(self) -> tuple[Device, ...]:
        return tuple(Device(at, uuid, "h100", "H100", 80 * GIB, False) for at, uuid in
                     enumerate(UUIDS))  # fmt: skip

    def usage(self, uuid: str) -> DeviceUsage:
        if uuid != UUIDS[0]:
            return DeviceUsage(0, ())
        here = [pid for pid, it in self.driver.states.items()
                if it is not ProcessState.CHECKPOINTED]  # fmt: skip
        here += self.strangers
        used = len(here) * self.nbytes + self.lingers
        processes = tuple(DeviceProcess(pid, self.nbytes) for pid in here)
        return DeviceUsage(used, processes, self.mps)

    def driver_version(self) -> str:
        return "580.65.06"
