"""One contract for every implementation of the Devices port: NVML (real pynvml, fake driver) and
virtual.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.port import (
    RELEASED_MEMORY_BYTES,
    DeviceFault,
    DeviceProcess,
    Devices,
    DeviceSample,
    DeviceUsage,
)
from support.nvml_box import NvmlBox, ProbedDevices, compile_fake_nvml

GIB = 1024**3


class Bench(Protocol):
    """A machine of four GPUs that a test can change under the agent."""

    virtual: bool

    @property
    def devices(self) -> Devices:
        """The port under test."""
        ...

    def occupy(self, uuid: str, pid: int, memory_bytes: int) -> None:
        """Let a process hold memory on a GPU."""
        ...

    def lose(self, uuid: str) -> None:
        """Let a GPU fall off the bus."""
        ...

    def work(self, uuid: str, percent: int, watts: int, mhz: int) -> None:
        """Let a GPU be used so much."""
        ...


class VirtualBench:
    virtual = True

    def __init__(self, script: Path) -> None:
        self.script = script
        self.devices = FakeDevices(parse_virtual(f"4xH100-80GB@{script}"), "bench")

    def occupy(self, uuid: str, pid: int, memory_bytes: int) -> None:
        self.devices.usages[uuid] = DeviceUsage(memory_bytes, (DeviceProcess(pid, memory_bytes),))

    def lose(self, uuid: str) -> None:
        self.devices.broken[uuid] = "gpu_is_lost"

    def work(self, uuid: str, percent: int, watts: int, mhz: int) -> None:
        gpu = uuid[-1]
        lines = (f"{gpu}|utilization|{percent}", f"{gpu}|power|{watts}", f"{gpu}|clock|{mhz}")
        self.script.write_text("\n".join(lines) + "\n")


class NvmlBench:
    virtual = False

    def __init__(self, box: NvmlBox) -> None:
        self.box = box
        for index in range(4):
            box.add_gpu(f"GPU-{index}")
        self.devices = ProbedDevices(box.start_probe())

    def occupy(self, uuid: str, pid: int, memory_bytes: int) -> None:
        self.box.use(uuid, memory_bytes)
        self.box.say(f"process|{uuid[-1]}|{pid}|{memory_bytes}")

    def lose(self, uuid: str) -> None:
        self.box.say(f"error|{uuid[-1]}|15")

    def work(self, uuid: str, percent: int, watts: int, mhz: int) -> None:
        gpu = uuid[-1]
        self.box.say(f"utilization|{gpu}|{percent}")
        self.box.say(f"power|{gpu}|{1000 * watts}")
        self.box.say(f"clock|{gpu}|{mhz}")


@pytest.fixture(scope="module")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fake_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(params=["virtual", "nvml"])
def bench(request: pytest.FixtureRequest, nvml_library: Path, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "virtual":
        yield VirtualBench(tmp_path / "state")
        return
    real = NvmlBench(NvmlBox(nvml_library, tmp_path / "machine"))
    yield real
    real.devices.close()


def test_devices_are_listed_by_index_with_unique_uuids(bench: Bench) -> None:
    devices = bench.devices.devices()
    assert [device.index for device in devices] == [0, 1, 2, 3]
    assert len({device.uuid for device in devices}) == 4


def test_a_device_says_its_short_type_its_memory_and_whether_it_is_virtual(bench: Bench) -> None:
    device = bench.devices.devices()[0]
    assert device.gpu_type == "h100-80gb"
    assert 79 * GIB < device.memory_bytes < 81 * GIB
    assert device.virtual is bench.virtual
    assert ("virtual" in device.model_name.lower()) is bench.virtual


def test_two_lists_are_equal(bench: Bench) -> None:
    assert bench.devices.devices() == bench.devices.devices()


def test_an_idle_device_counts_as_released(bench: Bench) -> None:
    usage = bench.devices.usage(bench.devices.devices()[1].uuid)
    assert usage.processes == ()
    assert usage.released_below(RELEASED_MEMORY_BYTES)


def test_a_process_on_a_device_is_seen_and_holds_it(bench: Bench) -> None:
    uuid = bench.devices.devices()[2].uuid
    bench.occupy(uuid, 4242, 20 * GIB)
    usage = bench.devices.usage(uuid)
    assert usage.processes == (DeviceProcess(4242, 20 * GIB),)
    assert usage.used_memory_bytes == 20 * GIB
    assert not usage.released_below(RELEASED_MEMORY_BYTES)
    assert bench.devices.usage(bench.devices.devices()[1].uuid).released_below(
        RELEASED_MEMORY_BYTES
    )


def test_asking_for_an_unknown_device_is_a_key_error(bench: Bench) -> None:
    with pytest.raises(KeyError):
        bench.devices.usage("GPU-nobody")


def test_every_device_is_healthy_at_first(bench: Bench) -> None:
    assert [vitals.symptoms for vitals in bench.devices.vitals()] == [()] * 4


def test_a_lost_device_stays_listed_and_says_why_it_is_unhealthy(bench: Bench) -> None:
    before = bench.devices.devices()
    bench.lose(before[3].uuid)
    assert bench.devices.devices() == before
    vitals = {entry.uuid: entry for entry in bench.devices.vitals()}
    assert vitals[before[3].uuid].symptoms == (("gpu_is_lost", ""),)
    assert [entry.symptoms == () for entry in vitals.values()] == [True, True, True, False]


def test_the_usage_of_a_lost_device_is_a_fault_and_never_a_guess(bench: Bench) -> None:
    uuid = bench.devices.devices()[3].uuid
    bench.lose(uuid)
    with pytest.raises(DeviceFault) as fault:
        bench.devices.usage(uuid)
    assert fault.value.reason == "gpu_is_lost"


def test_the_driver_version_is_a_word(bench: Bench) -> None:
    assert bench.devices.driver_version() == ("virtual" if bench.virtual else "580.65.06")


def test_a_device_in_good_order_has_no_symptoms_and_says_what_is_on_it(bench: Bench) -> None:
    vitals = bench.devices.vitals()
    assert [it.uuid for it in vitals] == [it.uuid for it in bench.devices.devices()]
    assert [it.symptoms for it in vitals] == [()] * 4
    assert vitals[0].usage == bench.devices.usage(vitals[0].uuid)


def test_a_lost_device_has_its_loss_as_a_symptom_and_no_figures(bench: Bench) -> None:
    bench.lose(bench.devices.devices()[3].uuid)
    lost = bench.devices.vitals()[3]
    assert [code for code, _ in lost.symptoms] == ["gpu_is_lost"]
    assert (lost.usage, lost.temperature_celsius) == (None, None)
    assert bench.devices.vitals()[0].symptoms == ()


def test_a_driver_that_has_said_nothing_has_no_message(bench: Bench) -> None:
    assert bench.devices.next_xid() is None


def test_a_sample_has_the_load_of_each_device_and_a_lost_one_has_none(bench: Bench) -> None:
    uuids = [device.uuid for device in bench.devices.devices()]
    bench.work(uuids[1], 97, 350, 1755)
    bench.lose(uuids[3])
    samples = bench.devices.samples()
    assert [sample.uuid for sample in samples] == uuids
    assert samples[1] == DeviceSample(uuids[1], 97, 350.0, 1755)
    assert samples[3] == DeviceSample(uuids[3], None, None, None)


def test_figures_that_a_driver_does_not_tell_are_unknown_in_a_sample(bench: Bench) -> None:
    sample = bench.devices.samples()[0]
    assert (sample.power_watts, sample.clock_mhz) == (None, None)
