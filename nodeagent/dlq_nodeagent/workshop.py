"""The real errands: a few threads for calls that may hang, with answers on the event loop."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.start_causes import StartCause
from dlq_nodeagent.devices.port import RELEASED_MEMORY_BYTES, DeviceFault, Devices
from dlq_nodeagent.errand_threads import ErrandThreads
from dlq_nodeagent.jobtree.checkpoints import newest_checkpoint
from dlq_nodeagent.jobtree.places import is_theirs
from dlq_nodeagent.jobtree.sweeping import sweep
from dlq_nodeagent.launch.launching import Launching, place_of, refusal, watch_of
from dlq_nodeagent.model.errands import (
    Look,
    LookOrder,
    Move,
    MoveResult,
    Preparation,
    PrepareOrder,
    Purpose,
    ReadOrder,
)
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import (
    GpuLook,
    GpuReading,
    Launch,
    OpenExec,
    OpenLog,
    OpenSamples,
    ProfileFound,
)
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import Handle
from dlq_nodeagent.profiling.places import Station
from dlq_nodeagent.runtimes.podman.pulls import ImageWanted, PullWish
from dlq_nodeagent.suspension.port import (
    MoveBroken,
    MoveOrder,
    MoveRefused,
    NotOnRecord,
    Suspender,
)
from dlq_profiler.records.tail import TrafficLook

# A rank on a dead file system holds at most three: one for each purpose of a look.
_THREADS = 32
# Calls to podman have threads of their own, because podman waits for its store's locks.
_ASKING = 8
# Rings are read one after the other: that takes CPU from the jobs of this host.
_READING = 1
_AFTER_END = frozenset({Purpose.FINAL, Purpose.RELEASE})
_Answer = TypeVar("_Answer")

log = get_logger("nodeagent.workshop")


class Answers(Protocol):
    """Receives answers: the core."""

    def prepared(self, key: RankKey, preparation: Preparation) -> None: ...

    def preparing(self, key: RankKey, detail: str) -> None: ...

    def looked(self, key: RankKey, purpose: Purpose, look: Look) -> None: ...

    def moved(self, key: RankKey, result: MoveResult) -> None: ...

    def gpus_seen(self, look: GpuLook) -> None: ...

    def profile_read(self, key: RankKey, found: ProfileFound) -> None: ...

    def traffic_seen(self, key: RankKey, seen: TrafficLook | None) -> None: ...


class Workshop:
    """Runs errands in threads. A job's dead file system blocks threads, never the heartbeat."""

    answers: Answers
    """Set once, before the first errand."""
    suspender: Suspender | None = None
    """None: no rank is ever suspended here."""

    def __init__(
        self,
        *,
        clock: Clock,
        devices: Devices,
        launching: Launching,
        station: Station,
        send_log: Callable[[OpenLog, Handle | None, str], None],
        run_inside: Callable[[OpenExec, Handle | None], None],
        send_samples: Callable[[OpenSamples], None],
        wake: Callable[[], None],
        free_below_bytes: int = RELEASED_MEMORY_BYTES,
    ) -> None:
        self._clock = clock
        self._devices = devices
        self._launching = launching
        self._station = station
        self.send_log = send_log
        self.run_inside = run_inside
        self.send_samples = send_samples
        self._wake = wake
        self._free_below_bytes = free_below_bytes
        self._threads = ErrandThreads(_THREADS, "errand")
        self._asking = ThreadPoolExecutor(_ASKING, thread_name_prefix="podman")
        self._reading = ThreadPoolExecutor(_READING, thread_name_prefix="profile")
        self._preparing: set[RankKey] = set()
        self._at_gpus = False
        self._closed = False

    def prepare(self, order: PrepareOrder) -> None:
        launch = order.launch
        self._preparing.add(launch.key)

        def prepare() -> Preparation | PullWish:
            # The watch reports the present load to the master, but no faster than it looks.
            if held_by := self._held_by(launch, answers=False):
                return Preparation(
                    error=f"a GPU is in use by something else: {held_by}",
                    cause=StartCause.GPU_HELD,
                )
            try:
                return self._launching.prepare(launch, ports=order.ports, taken=order.taken)
            except ImageWanted as wanted:
                return wanted.wish

        self._run(
            prepare,
            lambda answer: self._take(launch.key, answer),
            refusal,
            self._threads if launch.container is None else self._asking,
        )

    def abandon(self, key: RankKey) -> None:
        self._preparing.discard(key)
        self._launching.abandon(key)

    def look(self, order: LookOrder) -> None:
        """A look at GPUs whose driver cannot hang needs no thread. The last look at files does it
        on the way.
        """
        purpose = order.purpose
        quick = purpose in _AFTER_END and not self._asks_driver(order.launch)
        self._run(
            lambda: self._look(order, gpus_too=quick),
            lambda answer: self.answers.looked(order.launch.key, purpose, answer),
            lambda error: _failed_look(purpose, error),
            None if quick and purpose is Purpose.RELEASE else self._threads,
        )

    def _asks_driver(self, launch: Launch) -> bool:
        """Whether a look at the GPUs of a rank is a call that may hang."""
        with suppress(LaunchRefused):
            return not all(device.virtual for device in self._launching.devices_of(launch))
        return False

    def move(self, order: Move) -> None:
        launch = order.launch
        self._run(
            lambda: self._move(order),
            lambda result: self.answers.moved(launch.key, result),
            lambda error: MoveResult(broken=f"{type(error).__name__}: {error}"),
            self._threads,
        )

    def _move(self, order: Move) -> MoveResult:
        suspender = self.suspender
        if suspender is None:
            return MoveResult(refusal="this node suspends no jobs")
        wanted = self._move_order(order)
        try:
            moved = suspender.suspend(wanted) if order.out else suspender.resume(wanted)
        except NotOnRecord as found:
            return MoveResult(found=found.pids, nbytes=found.nbytes)
        except MoveRefused as refused:
            return MoveResult(refusal=str(refused))
        except MoveBroken as broken:
            return MoveResult(broken=str(broken))
        own_only = suspender.own_only or self._launching.own_only(order.launch)
        return MoveResult(
            nbytes=moved.nbytes, took_s=moved.took_s, own_only=own_only if order.out else ""
        )

    def _move_order(self, order: Move) -> MoveOrder:
        """The order of a move. Without GPUs it is refused, which undoes what an earlier agent has
        done.
        """
        launch, launching = order.launch, self._launching
        wanted = MoveOrder(
            key=launch.key,
            uuids=(),
            still=order.still,
            held=order.held,
            pids=order.pids,
            nbytes=order.nbytes,
        )
        with suppress(LaunchRefused, DeviceFault):
            devices = launching.devices_of(launch)
            uuids = tuple(device.uuid for device in devices)
            if not order.came_from:
                return replace(wanted, uuids=uuids)
            left = launching.devices_of(replace(launch, gpu_indexes=order.came_from))
            return replace(
                wanted,
                uuids=tuple(device.uuid for device in left),
                onto=uuids,
                rules=launching.devices_for(devices),
            )
        return wanted

    def look_at_gpus(self, number: int) -> None:
        if self._at_gpus:
            return  # a driver may hang: no more than one thread waits for it
        self._at_gpus = True
        self._run(
            lambda: GpuLook(number, tuple(self._readings())),
            self._gpus_seen,
            lambda error: GpuLook(number, ()),
            self._threads,
        )

    def _gpus_seen(self, look: GpuLook) -> None:
        self._at_gpus = False
        self.answers.gpus_seen(look)

    def _readings(self) -> Iterator[GpuReading]:
        for device in self._devices.devices():
            with suppress(DeviceFault):  # a silent device is not reported empty
                usage = self._devices.usage(device.uuid)
                yield GpuReading(device.index, usage.used_memory_bytes, len(usage.processes))

    def tidy(self, key: RankKey) -> None:
        self._launching.forget(key)
        self.drop_profile(key)

    def read_profile(self, order: ReadOrder) -> None:
        self._run(
            lambda: self._station.read(order),
            lambda found: self.answers.profile_read(order.launch.key, found),
            lambda error: self._station.failed(order),
            self._reading,
        )

    def look_at_traffic(self, launch: Launch, since_s: float) -> None:
        self._run(
            lambda: self._station.look(launch, since_s),
            lambda seen: self.answers.traffic_seen(launch.key, seen),
            lambda _error: None,
            self._reading,
        )

    def drop_profile(self, key: RankKey) -> None:
        self._reading.submit(self._station.remove, key)

    def drop_profiles_but(self, keys: Iterable[RankKey]) -> None:
        self._reading.submit(self._station.places.keep_only, tuple(keys))

    def close(self) -> None:
        """Wait for nothing, since a thread in a dead file system would hang for ever.

        No more answers are given. The next agent reads the records that were being read.
        """
        self._closed = True
        self._station.reader.stop()
        self._threads.close()
        for threads in (self._asking, self._reading):
            threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, key: RankKey, answer: Preparation | PullWish) -> None:
        if isinstance(answer, Preparation):
            self._answer(key, answer)
        elif key in self._preparing:
            self._fetch(key, answer)
        else:
            self._answer(key, Preparation(error=f"nobody waits for {answer.image} any more"))

    def _fetch(self, key: RankKey, wish: PullWish) -> None:
        """Pull an image without holding a thread here; then the rank is prepared again."""
        loop = asyncio.get_running_loop()

        def done(error: Exception | None) -> None:
            if error is not None:
                log.warning("image_not_fetched", key=str(key), image=wish.image, error=str(error))
            answer = Preparation(again=True) if error is None else refusal(error)
            with suppress(RuntimeError):  # the loop has ended, and with it every receiver
                loop.call_soon_threadsafe(self._answer, key, answer)

        def say(detail: str) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell, key, detail)

        self._launching.fetch(key, wish, say, done)

    def _answer(self, key: RankKey, answer: Preparation) -> None:
        self._preparing.discard(key)
        self.answers.prepared(key, answer)
        self._wake()

    def _tell(self, key: RankKey, detail: str) -> None:
        self.answers.preparing(key, detail)
        self._wake()

    def _look(self, order: LookOrder, *, gpus_too: bool) -> Look:
        launch = order.launch
        if order.purpose is Purpose.RELEASE:
            held_by = self._held_by(launch, answers=True, but=order.given_out)
            return Look(released=not held_by, held_by=held_by)
        seen = None
        if launch.checkpoint_directory:
            rights = self._launching.rights_of(launch)
            watch = watch_of(launch, order.floor_mtime_ns, rights.uid)
            if order.settled:
                watch = replace(watch, settle_s=0.0)
            with rights.taken():
                if is_theirs(place_of(launch), rights.uid):
                    seen = newest_checkpoint(watch, wall_s=self._clock.now_s())
        if order.purpose is not Purpose.FINAL:
            return Look(checkpoint=seen)
        sweep(Path(self._launching.job_files(launch.key).job_dir))
        free = gpus_too and not self._held_by(launch, answers=True)
        return Look(checkpoint=seen, released=True if free else None)

    def _held_by(self, launch: Launch, *, answers: bool, but: Collection[int] = frozenset()) -> str:
        """The first GPU of a launch that is not free, and why; empty: all are free.

        `answers`: a device whose driver does not answer is not free either. `but`: these are not
        asked about.
        """
        try:
            devices = self._launching.devices_of(launch)
        except LaunchRefused:
            return ""  # it never had them
        for device in devices:
            if device.index in but:
                continue
            try:
                usage = self._devices.usage(device.uuid)
            except DeviceFault as fault:
                if answers:
                    return str(fault)
                continue
            if not usage.released_below(self._free_below_bytes):
                return f"{device.uuid}: {usage.words}"
        return ""

    def _run(
        self,
        work: Callable[[], _Answer],
        answer: Callable[[_Answer], None],
        failure: Callable[[BaseException], _Answer],
        threads: ErrandThreads | ThreadPoolExecutor | None,
    ) -> None:
        """Run an errand in a thread; None: at once, with the answer still later."""
        loop = asyncio.get_running_loop()

        def give(found: _Answer) -> None:
            if not self._closed:
                answer(found)
                self._wake()

        def do() -> None:
            try:
                found = work()
            except Exception as error:
                log.error("errand_failed", exc_info=error)
                found = failure(error)
            with suppress(RuntimeError):  # the loop has ended, and with it every receiver
                soon(give, found)

        soon = loop.call_soon if threads is None else loop.call_soon_threadsafe
        if threads is None:
            do()
        else:
            threads.submit(do)


def _failed_look(purpose: Purpose, error: BaseException) -> Look:
    """The look that failed. A failed look at a job's files keeps no GPUs and closes no node."""
    if purpose is Purpose.RELEASE:
        return Look(released=False, held_by=f"{type(error).__name__}: {error}")
    return Look()
