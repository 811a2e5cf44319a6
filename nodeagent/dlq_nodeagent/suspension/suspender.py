"""The steps of a move, and the way back from each of them.

Off its GPUs: all processes that use CUDA are locked, then all are checkpointed, then the rank
stands still, then its GPUs are proven free. Until that proof every step can be undone. On a failure
processes are restored and unlocked, and the rank runs on. Back: the rank moves again, then every
process is restored, then every one is unlocked.

A finished step is left out, so that an order that is repeated after the agent's death continues.
The processes are on record before the first of them is locked. So a following agent knows which
ones to ask the driver about, even if the driver reports nothing at first. A live process of which
it reports nothing for `suspend.lock` cannot be brought back.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.devices.host import MEMINFO, meminfo_bytes
from dlq_nodeagent.devices.port import DeviceFault, Devices
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import NotStill
from dlq_nodeagent.suspension.checkpoints import (
    Checkpoints,
    DriverCheckpoints,
    DriverFault,
    DriverSilent,
    NoCheckpoints,
    ProcessState,
)
from dlq_nodeagent.suspension.port import (
    MoveBroken,
    Moved,
    MoveOrder,
    MoveRefusal,
    MoveRefused,
    NotOnRecord,
    SuspendConfig,
)

_LOOK_S = 0.02
_OWN_ONLY = "the driver is older than 580"
_UNKNOWN = "its GPUs are not known just now"

log = get_logger("nodeagent.suspender")


def free_host_bytes(path: str = MEMINFO) -> int:
    """Host memory that can be used without taking it from another program."""
    return meminfo_bytes("MemAvailable", path)


class _Refusal(MoveRefused):
    """A refusal whose steps have yet to be undone."""


@dataclass(slots=True, kw_only=True)
class HostSuspender:
    """The suspender of a host.

    `why_not` keeps ranks from leaving, never from coming back. `checkpoints` None: the driver is
    not open yet, and `opens` opens it. `opens` None: no device of this host has a driver (virtual
    devices), so processes only stand still.
    """

    clock: Clock
    config: SuspendConfig
    devices: Devices
    free_below_bytes: int
    checkpoints: Checkpoints | None
    opens: Callable[[], Checkpoints] | None = None
    why_not: str = ""
    free_host: Callable[[], int] = free_host_bytes
    _taking: dict[RankKey, int] = field(default_factory=dict)
    """Bytes of moves that are under way."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def own_only(self) -> str:
        """Empty if processes only stand still, because they are then on no particular GPU."""
        driver = self.checkpoints
        may = self.opens is None if driver is None else driver.remaps
        return "" if may else _OWN_ONLY

    def suspend(self, order: MoveOrder) -> Moved:
        began_s = self.clock.boottime_s()
        pids: list[int] = []
        try:
            with suppress(NotStill):  # an earlier agent may have got so far
                order.still.thaw()
            pids = self._users(order)
            nbytes = self._reserved(order, pids)
            if pids and not order.pids:
                raise NotOnRecord(tuple(pids), nbytes)
            self._leave(order, pids)
        except _Refusal as refusal:
            self._undo(order, pids, refusal)
        except NoCheckpoints as error:
            if order.pids:
                raise MoveBroken(f"an earlier agent may have moved it; now {error}") from None
            raise MoveRefused(MoveRefusal.OFF, self.why_not or str(error)) from None
        finally:
            with self._lock:
                self._taking.pop(order.key, None)
        return Moved(nbytes, self.clock.boottime_s() - began_s)

    def resume(self, order: MoveOrder) -> Moved:
        began_s = self.clock.boottime_s()
        if not order.uuids:
            raise MoveRefused(MoveRefusal.NOT_FREE, _UNKNOWN)
        try:
            pairs = self._pairs(order)
        except NoCheckpoints as error:
            raise MoveBroken(str(error)) from None
        for uuid in order.onto or order.uuids:
            if held_by := self._strangers(order, uuid):
                raise MoveRefused(MoveRefusal.NOT_FREE, f"{uuid}: {held_by}")
        try:
            if pairs:
                order.still.open_only(order.rules)
            order.still.thaw()
        except NotStill as error:
            raise MoveBroken(f"it still stands still: {error}") from None
        try:
            pids = self._users(order)
            living = order.still.pids()
            if ended := [pid for pid in order.pids if pid not in living]:
                raise MoveBroken(f"process {ended[0]} has ended meanwhile")
            self._all_back(order, pids, pairs)
        except (DriverFault, NoCheckpoints) as fault:
            raise MoveBroken(str(fault)) from None
        return Moved(0, self.clock.boottime_s() - began_s)

    def is_short(self) -> bool:
        """Whether the host has less free memory than it must keep."""
        return self.free_host() < self.config.spare

    # ---- what there is to move

    def _users(self, order: MoveOrder) -> list[int]:
        """Its processes that use CUDA, suspended ones included, and recorded ones that the driver
        does not report.

        NoCheckpoints: nobody can tell.
        """
        checkpoints = self._opened()
        if checkpoints is None:
            return []
        known, living = frozenset(order.pids), sorted(order.still.pids())
        return [pid for pid in living if pid in known or checkpoints.state(pid) is not None]

    def _reserved(self, order: MoveOrder, pids: Sequence[int]) -> int:
        """The bytes that the host must hold. _Refusal: there is no room, or suspension is off."""
        if self.why_not:
            raise _Refusal(MoveRefusal.OFF, self.why_not)
        if not order.uuids:
            raise _Refusal(MoveRefusal.NOT_FREE, _UNKNOWN)
        if self.checkpoints is None:
            return 0
        nbytes = self._used_bytes(order, pids)
        room = order.still.room()
        with self._lock:
            others = {**order.held, **self._taking}
            others.pop(order.key, None)
            left = self.config.memory - sum(others.values())
            under_way = sum(size for key, size in self._taking.items() if key not in order.held)
            free = self.free_host() - self.config.spare - under_way
            for most, what in (
                (left, "of suspend.memory"),
                (free, "of the host's memory"),
                (nbytes if room is None else room, "of its memory limit"),
            ):
                if nbytes > most:
                    raise _Refusal(
                        MoveRefusal.MEMORY, f"{nbytes} bytes to keep, {max(0, most)} {what} left"
                    )
            self._taking[order.key] = nbytes
        return nbytes

    def _used_bytes(self, order: MoveOrder, pids: Sequence[int]) -> int:
        nbytes = 0
        for uuid in order.uuids:
            try:
                usage = self.devices.usage(uuid)
            except DeviceFault as fault:
                raise _Refusal(MoveRefusal.NOT_FREE, str(fault)) from None
            if usage.mps_pids:
                raise _Refusal(MoveRefusal.SHARED, f"{uuid} is shared by MPS")
            strangers = [one.pid for one in usage.processes if one.pid not in pids]
            if strangers:
                raise _Refusal(MoveRefusal.SHARED, f"process {strangers[0]} is on {uuid} too")
            told = [one.memory_bytes for one in usage.processes]
            known = [size for size in told if size is not None]
            nbytes += sum(known) if len(known) == len(told) else usage.used_memory_bytes
        return max(nbytes, order.nbytes)  # an earlier agent may have moved some of it

    # ---- off

    def _leave(self, order: MoveOrder, pids: Sequence[int]) -> None:
        if fresh := [pid for pid in pids if pid not in order.pids]:
            raise _Refusal(MoveRefusal.LOCK, f"process {fresh[0]} uses CUDA only now")
        try:
            for pid in pids:
                self._locked(order, pid)
        except DriverFault as fault:
            raise _Refusal(MoveRefusal.LOCK, str(fault)) from None
        try:
            for pid in pids:
                self._out(order, pid)
        except DriverFault as fault:
            raise _Refusal(MoveRefusal.MOVE, str(fault)) from None
        try:
            order.still.freeze()
        except NotStill as error:
            raise _Refusal(MoveRefusal.STILL, str(error)) from None
        if held_by := self._held_by(order.uuids):
            raise _Refusal(MoveRefusal.NOT_FREE, held_by)

    def _held_by(self, uuids: Sequence[str]) -> str:
        """The first of these GPUs that does not become free in time, and why; empty:
        all are free.
        """
        end_s = self.clock.boottime_s() + self.config.free
        pause = threading.Event()
        for uuid in uuids:
            while held_by := self._holds(uuid):
                if self.clock.boottime_s() >= end_s:
                    return f"{uuid}: {held_by}"
                pause.wait(_LOOK_S)
        return ""

    def _holds(self, uuid: str) -> str:
        try:
            usage = self.devices.usage(uuid)
        except DeviceFault as fault:
            return str(fault)
        return "" if usage.released_below(self.free_below_bytes) else usage.words

    def _strangers(self, order: MoveOrder, uuid: str) -> str:
        """Why it cannot come back there yet; its own processes may be there already."""
        try:
            usage = self.devices.usage(uuid)
        except DeviceFault as fault:
            return str(fault)
        own = order.still.pids()
        others = [one for one in usage.processes if one.pid not in own]
        if others or (not usage.processes and not usage.released_below(self.free_below_bytes)):
            return usage.words
        return ""

    def _undo(self, order: MoveOrder, pids: Sequence[int], why: _Refusal) -> NoReturn:
        """Let the rank run on, and raise MoveRefused with the reason, or MoveBroken if it cannot
        run on.

        Every refusal comes here, since an earlier agent may have moved a part already.
        """
        log.warning("suspension_undone", key=str(order.key), refusal=why.word, why=why.words)
        try:
            order.still.thaw()
            self._all_back(order, pids, ())
        except (DriverFault, NotStill) as fault:
            raise MoveBroken(f"{why.words}; then {fault}") from None
        raise MoveRefused(why.word, why.words)

    def _all_back(
        self, order: MoveOrder, pids: Sequence[int], pairs: Sequence[tuple[str, str]]
    ) -> None:
        for pid in pids:
            self._back(order, pid, pairs)
        for pid in pids:
            self._unlock(order, pid)

    # ---- one process, from whatever state it is in; one that has ended needs no step

    def _locked(self, order: MoveOrder, pid: int) -> None:
        if self._state(order, pid) is ProcessState.RUNNING:
            self._driver.lock(pid, self.config.lock)

    def _out(self, order: MoveOrder, pid: int) -> None:
        if self._state(order, pid) is ProcessState.LOCKED:
            self._driver.checkpoint(pid)

    def _back(self, order: MoveOrder, pid: int, pairs: Sequence[tuple[str, str]]) -> None:
        state = self._state(order, pid)
        if state is ProcessState.FAILED:
            raise DriverFault("restore", pid, 0)
        if state is ProcessState.CHECKPOINTED:
            self._driver.restore(pid, pairs)

    def _unlock(self, order: MoveOrder, pid: int) -> None:
        if self._state(order, pid) is ProcessState.LOCKED:
            self._driver.unlock(pid)

    def _state(self, order: MoveOrder, pid: int) -> ProcessState | None:
        """The state of a process; None: it has ended.

        DriverFault: it lives, and the driver reports nothing for `suspend.lock`.
        """
        end_s = self.clock.boottime_s() + self.config.lock
        pause = threading.Event()
        while (state := self._driver.state(pid)) is None and pid in order.still.pids():
            if self.clock.boottime_s() >= end_s:
                raise DriverSilent(pid)
            pause.wait(_LOOK_S)
        return state

    def _pairs(self, order: MoveOrder) -> list[tuple[str, str]]:
        """All of its GPUs as the driver wants them; empty: it comes back to its own."""
        if not order.onto or order.onto == order.uuids or self._opened() is None:
            return []
        if not self._driver.remaps:
            raise MoveBroken(f"it is to come back to other GPUs, and {_OWN_ONLY}")
        return list(zip(order.uuids, order.onto, strict=True))

    def _opened(self) -> Checkpoints | None:
        """The driver; None: processes only stand still. NoCheckpoints: it cannot make
        checkpoints.
        """
        if self.checkpoints is None and self.opens is not None:
            self.checkpoints = self.opens()
        return self.checkpoints

    @property
    def _driver(self) -> Checkpoints:
        assert self.checkpoints is not None  # else no process is known to use CUDA
        return self.checkpoints


def open_suspender(
    config: SuspendConfig, devices: Devices, free_below_bytes: int, clock: Clock
) -> HostSuspender:
    """The suspender of this host; `why_not` says why it suspends none."""
    found = devices.devices()
    virtual = bool(found) and all(device.virtual for device in found)
    checkpoints: Checkpoints | None = None
    why_not = "" if config.memory else "suspend.memory is 0"
    if not why_not and not virtual:  # else it is opened once a rank of before comes back
        try:
            checkpoints = DriverCheckpoints()
        except NoCheckpoints as error:
            why_not = str(error)
    return HostSuspender(
        clock=clock,
        config=config,
        devices=devices,
        free_below_bytes=free_below_bytes,
        checkpoints=checkpoints,
        opens=None if virtual else DriverCheckpoints,
        why_not=why_not,
    )
