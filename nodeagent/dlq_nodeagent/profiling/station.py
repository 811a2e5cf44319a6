"""Reads a profile when its window is over, and removes it, in the agent's threads."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from dlq_common.clock import Clock
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.errands import ReadOrder
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Launch, ProfileFound
from dlq_nodeagent.profiling.finding import found_of
from dlq_nodeagent.profiling.places import Places
from dlq_nodeagent.profiling.reading import RingReader, RingReading, limits_of_process
from dlq_profiler.results import TrafficReason

# One takes a hundred thousand names away; the libraries make a few dozen.
_SWEEPS = 10

log = structlog.get_logger("nodeagent.profiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """The real one. `rights_of` and `devices_of` are launching's."""

    clock: Clock
    places: Places
    rights_of: Callable[[Launch], UserRights]
    devices_of: Callable[[Launch], Sequence[Device]]
    drops: bool
    """The agent is root, and its jobs are not."""
    reader: RingReader = field(default_factory=RingReader)

    def read(self, order: ReadOrder) -> ProfileFound:
        """Switch recording off and read the rings. May be repeated until they are removed."""
        launch = order.launch
        ended_s = self.clock.now_s()
        rights = self.rights_of(launch)
        limits: tuple[TrafficReason, ...] = ()
        before = self.places.before(launch.key)
        if order.main_pid is not None and before is not None and before.recording:
            limits = limits_of_process(order.main_pid)
        self.places.switch_off(launch.key, rights)
        if before is None:
            return self._found(order, RingReading(), (TrafficReason.NO_DIRECTORY,), ended_s)
        reading = RingReading()
        if self.places.has_files(launch.key, rights):
            reading = self.reader.read(self.places.rings(launch.key), rights, drop=self.drops)
        limits = tuple(dict.fromkeys(before.limits + limits + reading.limits))
        return self._found(order, reading, limits, ended_s)

    def failed(self, order: ReadOrder) -> ProfileFound:
        return self._found(order, RingReading(failure=TrafficReason.FAILED), (), self.clock.now_s())

    def remove(self, key: RankKey) -> None:
        if not any(self.places.remove(key) for _ in range(_SWEEPS)):
            log.warning("rings_not_removed", key=str(key))

    def keep_only(self, keys: Iterable[RankKey]) -> None:
        self.places.keep_only(keys)

    def _found(
        self,
        order: ReadOrder,
        reading: RingReading,
        limits: tuple[TrafficReason, ...],
        ended_s: float,
    ) -> ProfileFound:
        types = {device.gpu_type for device in self.devices_of(order.launch)}
        return found_of(
            order.launch,
            reading,
            limits,
            gpu_type=types.pop() if len(types) == 1 else "",
            window_s=order.window_s,
            ended_s=ended_s,
        )
