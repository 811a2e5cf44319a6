"""The words of `--devices` and the short names of GPU models."""

from pathlib import Path

import psutil
import pytest

from dlq_nodeagent.devices.choose import check_devices_word, open_devices
from dlq_nodeagent.devices.fake import FakeDevices, VirtualDevices, parse_virtual
from dlq_nodeagent.devices.gpu_type import gpu_type_of
from dlq_nodeagent.devices.host import read_host_facts

GIB = 1024**3


@pytest.mark.parametrize(
    ("name", "memory_gib", "word"),
    [
        ("NVIDIA H100 80GB HBM3", 79.6, "h100-80gb"),
        ("NVIDIA H100 PCIe", 79.6, "h100-80gb"),
        ("NVIDIA A100-SXM4-40GB", 40, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 80, "a100-80gb"),
        ("Tesla V100-SXM2-16GB", 15.8, "v100-16gb"),
        ("NVIDIA H200", 140.4, "h200-141gb"),
        ("Tesla T4", 15, "t4-16gb"),
        ("NVIDIA L40S", 45, "l40s-48gb"),
        ("NVIDIA GeForce RTX 4090", 24, "rtx4090-24gb"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "rtx6000-48gb"),
        ("NVIDIA Graphics Device", 24, "gpu-24gb"),
    ],
)
def test_a_model_gets_the_short_word_users_write(name: str, memory_gib: float, word: str) -> None:
    assert gpu_type_of(name, int(memory_gib * GIB)) == word


def test_virtual_devices_are_parsed() -> None:
    assert parse_virtual("8xH100-80GB") == VirtualDevices(8, "H100", 80)


def test_a_virtual_gpu_that_a_job_holds_has_the_load_of_that_name() -> None:
    busy = FakeDevices(parse_virtual("3xH100-80GB+busy"), "n1", in_use=lambda: frozenset({1}))
    assert [it.utilization_percent for it in busy.samples()] == [0, 90, 0]
    assert [it.power_watts for it in busy.samples()] == [70.0, 550.0, 70.0]
    idle = FakeDevices(parse_virtual("2xH100-80GB+idle"), "n1", in_use=lambda: frozenset({1}))
    assert [it.utilization_percent for it in idle.samples()] == [0, 0]
    silent = FakeDevices(parse_virtual("1xH100-80GB"), "n1", in_use=lambda: frozenset({0}))
    assert [it.utilization_percent for it in silent.samples()] == [None]


def test_a_script_has_the_last_word_on_the_load(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("0|utilization|35\n")
    made = parse_virtual(f"1xH100-80GB+busy@{script}")
    (sample,) = FakeDevices(made, "n1", in_use=lambda: frozenset({0})).samples()
    assert (sample.utilization_percent, sample.clock_mhz) == (35, 1755)


@pytest.mark.parametrize(
    "text",
    ["", "8", "8xH100", "xH100-80GB", "0xH100-80GB", "08xH100-80GB", "8xH100-80gb", "65xH100-80GB",
     "8xH100-80GB+", "8xH100-80GB+full", "8xH100-0GB", "8xH100-80GB ", "8xH100-80GB\n", "-1xH100-80GB", "8xH 100-80GB", "999999xH100-80GB"],  # noqa: E501
)  # fmt: skip
def test_any_other_form_of_virtual_devices_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="COUNTxMODEL-MEMORYGB"):
        parse_virtual(text)


def test_virtual_devices_of_two_nodes_have_different_uuids() -> None:
    one, two = (FakeDevices(parse_virtual("2xA100-40GB"), node) for node in ("n1", "n2"))
    assert not {d.uuid for d in one.devices()} & {d.uuid for d in two.devices()}


def test_a_machine_without_gpus_must_be_asked_for_by_name() -> None:
    assert open_devices("none", node_name="n1").devices() == ()


@pytest.mark.parametrize("word", ["", "cuda", "fake", "fake:", "fake:8xH100", "NVML"])
def test_an_unknown_devices_word_is_refused_before_anything_is_opened(word: str) -> None:
    with pytest.raises(ValueError, match=r"--devices|virtual devices"):
        check_devices_word(word)


def test_host_facts_are_those_of_this_machine() -> None:
    facts = read_host_facts(agent_version="0.1.0")
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.cpu_count >= 1
    assert facts.memory_bytes == psutil.virtual_memory().total > 100 * 1024**2
    assert facts.agent_version == "0.1.0"
