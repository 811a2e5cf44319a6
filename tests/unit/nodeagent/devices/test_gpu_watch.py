"""What the agent tells of its GPUs: when, for how long, and what it never mistakes."""

import os
import stat
from pathlib import Path

import pytest

from dlq_common.daemon.config import Seconds
from dlq_nodeagent.devices.choose import open_devices
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.kernel_log import KernelLog, LoggedXid, parse
from dlq_nodeagent.devices.port import (
    RELEASED_MEMORY_BYTES,
    Device,
    DeviceProcess,
    DeviceUsage,
    DeviceVitals,
)
from dlq_nodeagent.devices.watch import GpusConfig, GpuWatch
from dlq_nodeagent.model.gpus import GpuHealth
from support.fake_clock import FakeClock
from support.waiting import wait_until

GIB = 1024**3
BUSY = DeviceUsage(8 * GIB, (DeviceProcess(4711, 8 * GIB),))


class Bench:
    """A watch over four virtual GPUs; `ours` are those that ranks have."""

    def __init__(self, **settings: float) -> None:
        self.clock = FakeClock()
        self.devices = FakeDevices(parse_virtual("4xH100-80GB"), "n1")
        self.ours: frozenset[int] = frozenset()
        self.watch = GpuWatch(
            clock=self.clock,
            devices=self.devices,
            in_use=lambda: self.ours,
            settings=GpusConfig(**settings),  # type: ignore[arg-type]
        )
        self.watch.look()

    def uuid(self, index: int) -> str:
        return self.devices.devices()[index].uuid

    def told(self, *, first: bool = True) -> tuple[GpuHealth, ...]:
        found = self.watch.told(first)
        assert found is not None
        return found

    def codes(self, index: int) -> list[str]:
        return [symptom.code for symptom in self.told()[index].symptoms]


def test_the_first_heartbeat_of_a_session_tells_all_and_the_next_nothing_new() -> None:
    bench = Bench()
    assert [it.index for it in bench.told(first=True)] == [0, 1, 2, 3]
    assert bench.watch.told(False) is None
    assert bench.watch.told(True) is not None


def test_figures_alone_are_told_now_and_then_and_symptoms_at_once() -> None:
    bench = Bench(figures_every=30.0)
    bench.told()
    bench.clock.advance(29.0)
    assert bench.watch.told(False) is None
    bench.devices.broken[bench.uuid(2)] = "gpu_is_lost"
    bench.watch.look()
    assert [symptom.code for symptom in bench.told(first=False)[2].symptoms] == ["gpu_is_lost"]
    bench.clock.advance(30.0)
    assert bench.watch.told(False) is not None


def test_before_the_first_look_nothing_is_told() -> None:
    watch = GpuWatch(
        clock=FakeClock(),
        devices=FakeDevices(parse_virtual("2xH100-80GB"), "n1"),
        in_use=frozenset,
    )
    assert watch.told(True) is None


def test_a_gpu_that_somebody_uses_for_no_job_of_ours_is_held() -> None:
    bench = Bench()
    bench.devices.usages[bench.uuid(1)] = BUSY
    bench.watch.look()
    (symptom,) = bench.told()[1].symptoms
    assert (symptom.code, symptom.detail) == (
        "held",
        f"{8 * GIB} bytes used, processes: 4711",
    )
    bench.devices.usages.clear()
    bench.watch.look()
    assert bench.codes(1) == []


def test_what_our_own_ranks_use_is_theirs() -> None:
    bench = Bench()
    bench.devices.usages[bench.uuid(1)] = BUSY
    bench.ours = frozenset({1})
    bench.watch.look()
    assert bench.codes(1) == []


def test_a_rank_that_has_ended_since_the_look_does_not_make_its_gpu_held() -> None:
    bench = Bench()
    bench.devices.usages[bench.uuid(1)] = BUSY
    bench.ours = frozenset({1})
    bench.watch.look()
    bench.ours = frozenset()
    assert bench.codes(1) == []


def test_a_rank_that_has_come_since_the_look_does_not_either() -> None:
    bench = Bench()
    bench.devices.usages[bench.uuid(1)] = BUSY
    bench.watch.look()
    bench.ours = frozenset({1})
    assert bench.codes(1) == []


def test_a_rank_that_comes_while_somebody_looks_is_no_stranger() -> None:
    bench = Bench()
    bench.devices.usages[bench.uuid(1)] = BUSY
    answers = iter([frozenset[int](), frozenset({1}), frozenset[int]()])
    bench.watch.in_use = lambda: next(answers)
    bench.watch.look()
    assert bench.codes(1) == []


def test_how_much_memory_a_free_gpu_may_have_is_configuration() -> None:
    bench = Bench(free_below=100)
    bench.devices.usages[bench.uuid(0)] = DeviceUsage(200, ())
    bench.watch.look()
    assert bench.codes(0) == ["held"]


def test_a_message_of_the_driver_is_told_with_its_age_for_a_day() -> None:
    bench = Bench()
    bench.watch.heard(bench.uuid(3), 79, bench.clock.boottime_s() - 100.0, "off the bus")
    (symptom,) = bench.told()[3].symptoms
    assert (symptom.code, symptom.detail, symptom.age_s) == ("xid_79", "off the bus", 100.0)
    bench.clock.advance(86_400.0)
    bench.watch.look()
    assert bench.codes(3) == []


def test_the_same_message_from_two_sources_is_one_and_the_newest_counts() -> None:
    bench = Bench()
    now_s = bench.clock.boottime_s()
    bench.watch.heard(bench.uuid(0), 48, now_s - 5.0, "DBE")
    bench.watch.heard(bench.uuid(0), 48, now_s - 1.0)
    bench.watch.heard(bench.uuid(0), 48, now_s - 50.0, "older")
    (symptom,) = bench.told()[0].symptoms
    assert (symptom.age_s, symptom.detail) == (1.0, "DBE")


def test_a_driver_that_does_not_answer_is_told_for_every_gpu() -> None:
    bench = Bench(hangs=60.0)
    bench.clock.advance(61.0)
    assert [bench.codes(index) for index in range(4)] == [["driver_hangs"]] * 4
    bench.watch.look()
    assert bench.codes(0) == []


def test_a_driver_that_has_never_answered_is_told_too() -> None:
    clock = FakeClock()
    devices = FakeDevices(parse_virtual("2xH100-80GB"), "n1")
    watch = GpuWatch(clock=clock, devices=devices, in_use=frozenset)
    clock.advance(61.0)
    told = watch.told(True)
    assert told is not None
    assert [[it.code for it in gpu.symptoms] for gpu in told] == [["driver_hangs"]] * 2


def test_what_comes_and_goes_is_told_for_a_while_as_one_thing(tmp_path: Path) -> None:
    script = tmp_path / "how"
    clock = FakeClock()
    devices = FakeDevices(parse_virtual(f"1xH100-80GB@{script}"), "n1")
    watch = GpuWatch(clock=clock, devices=devices, in_use=frozenset)
    script.write_text("0|thermal_slowdown|warm\n")
    watch.look()
    assert watch.told(False) is not None
    script.write_text("")
    for _ in range(3):
        clock.advance(9.0)
        watch.look()
        assert watch.told(False) is None
    clock.advance(300.0)
    watch.look()
    told = watch.told(False)
    assert told is not None
    assert told[0].symptoms == ()


def test_the_threads_look_by_themselves_and_stop_when_told(tmp_path: Path) -> None:
    script = tmp_path / "script"
    devices = open_devices(f"fake:2xH100-80GB@{script}", node_name="n1")
    watch = GpuWatch(
        clock=FakeClock(),
        devices=devices,
        in_use=frozenset,
        settings=GpusConfig(look_every=Seconds(0.0)),
    )
    watch.start()
    wait_until(lambda: watch.told(True), what="the first look")
    script.write_text("1|row_remap_failed|no spare row\n1|temperature|85\n")

    def symptoms() -> bool:
        told = watch.told(True)
        return told is not None and bool(told[1].symptoms)

    wait_until(symptoms, what="the symptom of the script")
    told = watch.told(True)
    assert told is not None
    assert told[1].temperature_celsius == 85
    watch.stop()


# ---- scripted virtual devices


def test_a_script_says_how_virtual_gpus_are(tmp_path: Path) -> None:
    script = tmp_path / "how"
    devices = FakeDevices(parse_virtual(f"2xH100-80GB@{script}"), "n1")
    assert [it.symptoms for it in devices.vitals()] == [(), ()]
    script.write_text("0|xid_79|off the bus\n1|process|17|1024\n1|process|18|1024\n")
    first, second = devices.vitals()
    assert first.symptoms == (("xid_79", "off the bus"),)
    assert second.usage == DeviceUsage(2048, (DeviceProcess(17, 1024), DeviceProcess(18, 1024)))
    assert not devices.usage(second.uuid).released_below(RELEASED_MEMORY_BYTES)


def test_without_a_script_nothing_is_ever_wrong() -> None:
    devices = FakeDevices(parse_virtual("2xH100-80GB"), "n1")
    assert [it.symptoms for it in devices.vitals()] == [(), ()]


@pytest.mark.parametrize("word", ["2xH100-80GB@", "2xH100-80GB@relative"])
def test_a_script_is_an_absolute_path(word: str) -> None:
    with pytest.raises(ValueError, match="COUNTxMODEL"):
        parse_virtual(word)


# ---- the kernel's log


def test_a_message_of_the_driver_is_read_with_its_card_number_and_time() -> None:
    record = (
        "4,1234,98765432,-;NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
    )
    found = parse(record)
    assert found is not None
    assert (found.pci, found.number, found.boot_s) == ("0000:3b:00", 79, 98.765432)
    assert found.words.endswith("fallen off the bus.")


@pytest.mark.parametrize(
    "record",
    [
        "6,1,2,-;usb 1-1: new device",
        "4,1,2,-;someone wrote NVRM: Xid (PCI:0000:3b:00): 79",
        "4,1,2,-;NVRM: Xid (PCI:nonsense): 79",
        "4,1,x,-;NVRM: Xid (PCI:0000:3b:00): 79",
        "NVRM: Xid (PCI:0000:3b:00): 79",
        "",
    ],
)
def test_anything_else_is_no_message_of_the_driver(record: str) -> None:
    assert parse(record) is None


def test_messages_go_to_the_card_at_that_place_and_to_no_other(tmp_path: Path) -> None:
    class Card:
        def devices(self) -> tuple[Device, ...]:
            return (Device(0, "GPU-a", "h100-80gb", "H100", 1, virtual=False, pci="0000:3b:00"),)

        def vitals(self) -> tuple[DeviceVitals, ...]:
            return (DeviceVitals("GPU-a"),)

        def next_xid(self) -> tuple[str, int] | None:
            return None

    class Log:
        def xids(self) -> list[LoggedXid]:
            return [
                LoggedXid("0000:3b:00", 63, 5.0, "row remapper"),
                LoggedXid("0000:99:00", 79, 5.0, "of a card that is not ours"),
            ]

    clock = FakeClock()
    watch = GpuWatch(clock=clock, devices=Card(), in_use=frozenset)  # type: ignore[arg-type]
    watch.look()
    watch.read_log(Log())  # type: ignore[arg-type]
    told = watch.told(True)
    assert told is not None
    assert [(it.code, it.detail) for it in told[0].symptoms] == [("xid_63", "row remapper")]


@pytest.fixture
def kmsg() -> str:
    """The real log, where this user may read it."""
    path = "/dev/kmsg"
    if not os.path.exists(path) or not stat.S_ISCHR(os.stat(path).st_mode):
        pytest.skip("no kernel log here")
    try:
        KernelLog(path).close()
    except OSError as error:
        pytest.skip(f"the kernel log cannot be read: {error.strerror}")
    return path


def test_the_log_of_this_kernel_is_read_to_its_end_without_waiting(kmsg: str) -> None:
    one = KernelLog(kmsg)
    assert all(found.number > 0 for found in one.xids())
    one.close()


def test_a_log_that_may_not_be_read_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    def refuse() -> KernelLog:
        raise PermissionError(1, "Operation not permitted")

    devices = FakeDevices(parse_virtual("1xH100-80GB"), "n1")
    watch = GpuWatch(clock=FakeClock(), devices=devices, in_use=frozenset, open_log=refuse)
    watch.start()
    wait_until(lambda: watch.told(True), what="a look")
    watch.stop()
