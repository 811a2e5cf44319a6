"""Looks at the GPUs again and again, in threads of its own, and makes the reports for the master.

Drivers may hang: the agent's loop never waits for them, and a look that does not come back is
reported as `driver_hangs`. Between the looks a sample of each GPU's load is taken every second, and
reports tell their sums. A restarted agent looks at everything anew, and reads the driver's
messages of this boot from the kernel's log. After a restart of the master or a silence, the first
heartbeat of a session reports everything.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from dlq_common.clock import Clock
from dlq_common.daemon.config import Bytes, Seconds
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.devices.kernel_log import KernelLog
from dlq_nodeagent.devices.load import LoadMeter
from dlq_nodeagent.devices.port import Device, Devices, DeviceVitals
from dlq_nodeagent.model.gpus import GpuHealth, GpuSymptom

_XID = "xid_"
_HELD, _HANGS = "held", "driver_hangs"
# They come and go from look to look. Each is reported for a while, so that it is one event and not
# a hundred.
_FLICKERING = frozenset({"thermal_slowdown", "power_brake", "nvlink_errors"})
_LISTEN_S = 1.0
_FORGET_S = 86_400.0  # a message of the driver is reported for so long
_LINGER_S = 300.0  # a passing symptom is reported for so long after it was last seen

log = get_logger("nodeagent.gpus")


@dataclass(frozen=True, slots=True)
class GpusConfig:
    """How GPUs are watched. The master's configuration decides about the findings."""

    look_every: Seconds = Seconds(10.0)  # how often GPUs are looked at
    figures_every: Seconds = Seconds(30.0)  # interval of reports on temperature and use
    hangs: Seconds = Seconds(60.0)  # a driver that has not answered for so long
    free_below: Bytes = Bytes(500 * 1024**2)  # memory in use on a GPU that counts as free
    release_timeout: Seconds = Seconds(30.0)  # from a job's end; then its node is closed to work
    # An absolute directory for files that tell DCGM's exporter which job has which GPU; "": none.
    job_mapping: str = ""


@dataclass(slots=True)
class _Seen:
    last_s: float
    words: str


@dataclass(slots=True, kw_only=True)
class GpuWatch:
    """`in_use` names the GPUs that ranks of ours have; it may be called from any thread."""

    clock: Clock
    devices: Devices
    in_use: Callable[[], frozenset[int]]
    settings: GpusConfig = field(default_factory=GpusConfig)
    open_log: Callable[[], KernelLog] = KernelLog
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _vitals: tuple[DeviceVitals, ...] = ()
    _looked_s: float = 0.0
    _seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)
    _held: dict[int, str] = field(default_factory=dict)
    _told: tuple[GpuHealth, ...] = ()
    _told_s: float = 0.0
    _meter: LoadMeter = field(init=False)

    def __post_init__(self) -> None:
        self._looked_s = self.clock.boottime_s()
        self._meter = LoadMeter(self._looked_s)

    def start(self) -> None:
        """Begin to look. A machine without GPUs is not looked at."""
        if self.devices.devices():
            threading.Thread(target=self._look_again, name="gpus", daemon=True).start()

    def stop(self) -> None:
        """Look no more; waits for nothing, since a driver may hang."""
        self._stopped.set()

    # ---- the agent's loop

    def told(self, first: bool) -> tuple[GpuHealth, ...] | None:
        """The GPUs' health for a heartbeat; None: the last report still holds."""
        now_s = self.clock.boottime_s()
        ours = self.in_use()
        with self._lock:
            vitals = self._vitals
            if not vitals and self._hangs(now_s):
                vitals = tuple(DeviceVitals(it.uuid) for it in self.devices.devices())
            found = tuple(self._health(it, ours, now_s) for it in vitals)
        same = [_codes(it) for it in found] == [_codes(it) for it in self._told]
        if not found or (not first and same and now_s - self._told_s < self.settings.figures_every):
            return None
        if not same:
            for it in found:
                if it.symptoms:
                    log.warning("gpu_symptoms", gpu=it.index, codes=sorted(_codes(it)))
        self._told, self._told_s = found, now_s
        return self._with_loads(found)

    def _with_loads(self, found: tuple[GpuHealth, ...]) -> tuple[GpuHealth, ...]:
        with self._lock:
            loads = self._meter.drawn()
        uuids = {device.index: device.uuid for device in self.devices.devices()}
        return tuple(replace(it, load=loads.get(uuids[it.index])) for it in found)

    def _health(self, vitals: DeviceVitals, ours: frozenset[int], now_s: float) -> GpuHealth:
        device = self._device(vitals.uuid)
        symptoms = [
            GpuSymptom(code, words) for code, words in vitals.symptoms if not _remembered(code)
        ]
        if self._hangs(now_s):
            symptoms.append(GpuSymptom(_HANGS, "the driver does not answer"))
        if device.index in self._held and device.index not in ours:
            symptoms.append(GpuSymptom(_HELD, self._held[device.index]))
        usage = vitals.usage
        for (uuid, code), seen in self._seen.items():
            age_s = max(0.0, now_s - seen.last_s)
            kept_s = _LINGER_S if code in _FLICKERING else _FORGET_S
            if uuid == vitals.uuid and age_s < kept_s:
                symptoms.append(GpuSymptom(code, seen.words, age_s))
        return GpuHealth(
            index=device.index,
            symptoms=tuple(symptoms),
            temperature_celsius=vitals.temperature_celsius,
            utilization_percent=vitals.utilization_percent,
            used_memory_bytes=None if usage is None else usage.used_memory_bytes,
        )

    def _hangs(self, now_s: float) -> bool:
        return now_s - self._looked_s > self.settings.hangs

    # ---- the threads

    def sample(self) -> None:
        """Take a sample of each GPU's load; may take as long as a driver likes."""
        samples = self.devices.samples()
        with self._lock:
            self._meter.take(samples, self.clock.boottime_s())

    def look(self) -> None:
        """Look once; may take as long as a driver likes."""
        ours = self.in_use()
        vitals = self.devices.vitals()
        ours |= self.in_use()  # the look may have seen a rank that came or went meanwhile
        now_s = self.clock.boottime_s()
        with self._lock:
            self._vitals, self._looked_s = vitals, now_s
            self._held = dict(self._found_held(vitals, ours))
            for it in vitals:
                for code, words in it.symptoms:
                    if code in _FLICKERING:
                        self._seen[it.uuid, code] = _Seen(now_s, words)
                    elif code.startswith(_XID):
                        self._seen.setdefault((it.uuid, code), _Seen(now_s, words))

    def _found_held(
        self, vitals: Iterable[DeviceVitals], ours: frozenset[int]
    ) -> Iterator[tuple[int, str]]:
        for it in vitals:
            index, usage = self._device(it.uuid).index, it.usage
            if usage is None or index in ours:
                continue
            if not usage.released_below(self.settings.free_below):
                yield index, usage.words

    def heard(self, uuid: str, number: int, at_s: float, words: str = "") -> None:
        """The driver has said something about a GPU, at that boottime."""
        key = (uuid, f"{_XID}{number}")
        with self._lock:
            known = self._seen.get(key)
            if known is None or at_s > known.last_s:
                self._seen[key] = _Seen(at_s, words or (known.words if known else ""))

    def read_log(self, kernel_log: KernelLog) -> None:
        places = {it.pci: it for it in self.devices.devices() if it.pci}
        for xid in kernel_log.xids():
            if xid.pci in places:
                self.heard(places[xid.pci].uuid, xid.number, xid.boot_s, xid.words)

    def listen(self) -> None:
        while (heard := self.devices.next_xid()) is not None:
            uuid, number = heard
            log.warning("xid", gpu=uuid, number=number)
            self.heard(uuid, number, self.clock.boottime_s())

    def _look_again(self) -> None:
        kernel_log = self._opened_log()
        look_at_s = 0.0
        while not self._stopped.is_set():
            try:
                self.listen()
                self.sample()
                if kernel_log is not None:
                    self.read_log(kernel_log)
                if self.clock.boottime_s() >= look_at_s:
                    self.look()
                    look_at_s = self.clock.boottime_s() + self.settings.look_every
            except Exception:
                # The next look may succeed after any failure; until then it is reported as a hang.
                log.exception("gpu_look_failed")
            self._stopped.wait(_LISTEN_S)
        if kernel_log is not None:
            kernel_log.close()

    def _opened_log(self) -> KernelLog | None:
        if all(device.virtual for device in self.devices.devices()):
            return None
        try:
            return self.open_log()
        except OSError as error:
            log.warning("kernel_log_unreadable", why=error.strerror)
            return None

    def _device(self, uuid: str) -> Device:
        return next(device for device in self.devices.devices() if device.uuid == uuid)


def _codes(health: GpuHealth) -> frozenset[str]:
    return frozenset(symptom.code for symptom in health.symptoms)


def _remembered(code: str) -> bool:
    return code in _FLICKERING or code.startswith(_XID)
