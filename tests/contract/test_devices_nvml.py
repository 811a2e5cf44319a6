"""What only NVML can do: missing drivers, old drivers, lost cards, other models."""

import subprocess
from pathlib import Path

import pytest

from support.extent import spread
from support.nvml_box import NvmlBox, ProbedDevices, compile_fake_nvml


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fake_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def box(library: Path, tmp_path: Path) -> NvmlBox:
    return NvmlBox(library, tmp_path / "machine")


def refusal(process: subprocess.Popen[str]) -> str:
    """What the probe says when it will not start."""
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    return errors


def test_a_machine_without_the_library_is_told_to_install_the_driver(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "install the NVIDIA driver" in refusal(
        NvmlBox(empty, tmp_path / "machine").start_probe()
    )


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(9, "not loaded"), (18, "reboot"), (4, "permissions"), (999, "NVML")],
)
def test_each_refusal_of_the_driver_names_its_remedy(box: NvmlBox, code: int, remedy: str) -> None:
    box.say(f"init|{code}")
    assert remedy in refusal(box.start_probe())


def test_cuda_visible_devices_of_the_agent_renumbers_nothing(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.add_gpu("GPU-b")
    probed = ProbedDevices(
        box.start_probe(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="FASTEST_FIRST")
    )
    assert [(d.index, d.uuid) for d in probed.devices()] == [(0, "GPU-a"), (1, "GPU-b")]
    probed.close()


def test_a_card_lost_before_the_start_is_left_out_and_the_others_keep_their_index(
    box: NvmlBox,
) -> None:
    for uuid in ("GPU-a", "GPU-b", "GPU-c"):
        box.add_gpu(uuid)
    box.say("error|1|15")
    probed = ProbedDevices(box.start_probe())
    assert [(d.index, d.uuid) for d in probed.devices()] == [(0, "GPU-a"), (2, "GPU-c")]
    probed.close()


def test_memory_the_driver_reserves_for_itself_does_not_hold_a_card(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    probed = ProbedDevices(box.start_probe())
    assert probed.usage("GPU-a").used_memory_bytes == 0
    probed.close()


def test_a_card_that_cannot_remap_more_rows_is_unhealthy(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.say("remap_failure|0")
    probed = ProbedDevices(box.start_probe())
    (vitals,) = probed.vitals()
    assert vitals.symptoms == (("row_remap_failed", "no spare row is left for a bad one"),)
    probed.close()


def test_many_processes_on_one_card_are_all_seen(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    for pid in range(100, 140):
        box.say(f"process|0|{pid}|1048576")
    probed = ProbedDevices(box.start_probe())
    assert [p.pid for p in probed.usage("GPU-a").processes] == list(range(100, 140))
    probed.close()


def test_a_driver_older_than_the_versioned_calls_still_answers(tmp_path: Path) -> None:
    old = compile_fake_nvml(tmp_path / "old", "-DOLD_DRIVER")
    box = NvmlBox(old, tmp_path / "machine")
    box.add_gpu("GPU-a", "Tesla V100-SXM2-16GB", 16_945_512_448)
    box.say("process|0|77|2048")
    probed = ProbedDevices(box.start_probe())
    assert probed.devices()[0].gpu_type == "v100-16gb"
    assert [p.pid for p in probed.usage("GPU-a").processes] == [77]
    assert [vitals.symptoms for vitals in probed.vitals()] == [()]
    probed.close()


def test_a_card_that_mps_shares_is_in_use_and_said_to_be_shared(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.say("mps|0|78|1048576")
    probed = ProbedDevices(box.start_probe())
    usage = probed.usage("GPU-a")
    assert ([p.pid for p in usage.processes], usage.mps_pids) == ([78], (78,))
    assert "shared by MPS, which dlq gives to no job: 78" in usage.words
    probed.close()


def test_a_card_that_could_be_cut_into_parts_and_is_not_has_no_symptom(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.say("mig|0|0")
    assert vitals_of(box) == {}


def vitals_of(box: NvmlBox) -> dict[str, str]:
    """What is wrong with the only card, by code."""
    probed = ProbedDevices(box.start_probe())
    (found,) = probed.vitals()
    probed.close()
    return dict(found.symptoms)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    spread(
        [
            ("remap_pending|0", "row_remap_pending", "rows"),
            ("remap_failure|0", "row_remap_failed", "no spare row"),
            ("ecc|0|3", "ecc_uncorrected", "3 since"),
            ("throttle|0|40", "thermal_slowdown", "hardware"),
            ("throttle|0|20", "thermal_slowdown", "driver"),
            ("throttle|0|80", "power_brake", "power supply"),
            ("recovery|0|1", "recovery_reset", "driver asks"),
            ("recovery|0|2", "recovery_reboot", "driver asks"),
            ("mig|0|1", "mig_mode", "whole GPUs"),
            ("error|0|15", "gpu_is_lost", ""),
            ("error|0|16", "reset_required", ""),
        ],
        5,
    ),
)
def test_each_fact_of_the_driver_is_a_symptom(
    box: NvmlBox, line: str, code: str, words: str
) -> None:
    box.add_gpu("GPU-a")
    probed = ProbedDevices(box.start_probe())
    assert len(probed.devices()) == 1
    box.say(line)
    (found,) = probed.vitals()
    probed.close()
    assert [name for name, _ in found.symptoms] == [code]
    assert words in found.symptoms[0][1]


def test_an_odd_answer_to_a_side_question_is_shown_and_takes_nothing_away(box: NvmlBox) -> None:
    """The GPU is as well known as without that answer, and the question is named."""
    box.add_gpu("GPU-a")
    probed = ProbedDevices(box.start_probe())
    for line in (
        *("temperature|0|54", "utilization|0|97", "link|0|0|1|0"),
        *("fails|0|nvmlDeviceGetNvLinkState|999", "fails|0|nvmlDeviceGetTemperature|999"),
    ):
        box.say(line)
    (found,) = probed.vitals()
    (sample,) = probed.samples()
    probed.close()
    ((code, words),) = found.symptoms
    assert code == "odd_answer"
    assert "nvmlDeviceGetNvLinkState answers with error 999" in words
    assert "nvmlDeviceGetTemperature answers with error 999" in words
    assert (found.temperature_celsius, found.utilization_percent) == (None, 97)
    assert (sample.utilization_percent, found.usage is not None) == (97, True)


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        ("nvmlDeviceGetMigMode", 15, "gpu_is_lost"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 999, "nvml_error_999"),
    ],
)
def test_a_silent_card_and_one_whose_use_is_not_known_are_faults(
    box: NvmlBox, call: str, error: int, code: str
) -> None:
    box.add_gpu("GPU-a")
    box.say(f"fails|0|{call}|{error}")
    assert list(vitals_of(box)) == [code]


def test_the_drivers_own_minor_number_is_told(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.add_gpu("GPU-b")
    box.say("minor|1|7")
    box.say("fails|1|nvmlDeviceGetPciInfo_v3|999")
    probed = ProbedDevices(box.start_probe())
    assert [device.minor for device in probed.devices()] == [None, 7]
    probed.close()


def test_a_card_that_is_well_has_no_symptoms_and_its_figures(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    for line in ("temperature|0|54", "utilization|0|97", "throttle|0|4", "recovery|0|0"):
        box.say(line)
    probed = ProbedDevices(box.start_probe())
    (found,) = probed.vitals()
    assert (found.symptoms, found.temperature_celsius, found.utilization_percent) == ((), 54, 97)
    probed.close()


def test_a_figure_that_the_driver_does_not_tell_is_none(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    probed = ProbedDevices(box.start_probe())
    assert probed.vitals()[0].temperature_celsius is None
    probed.close()


def test_a_link_that_is_down_beside_others_that_are_up_is_a_symptom(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    for line in ("link|0|0|1|0", "link|0|1|0|0", "link|0|2|1|0"):
        box.say(line)
    assert vitals_of(box) == {"nvlink_down": "links 1"}


def test_a_card_without_partners_has_all_links_down_and_that_is_fine(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.say("link|0|0|0|0")
    assert vitals_of(box) == {}


def test_only_link_errors_that_are_new_are_told(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.say("link|0|0|1|500")
    probed = ProbedDevices(box.start_probe())
    assert probed.vitals()[0].symptoms == ()
    box.unsay("link|0|0|1|500")
    box.say("link|0|0|1|507")
    assert probed.vitals()[0].symptoms == (("nvlink_errors", "7 more since the last look"),)
    assert probed.vitals()[0].symptoms == ()
    probed.close()


def test_xids_come_once_each_with_the_card_they_are_about(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.add_gpu("GPU-b")
    probed = ProbedDevices(box.start_probe())
    assert probed.next_xid() is None
    box.say("xid|1|79")
    box.say("xid|0|31")
    assert [probed.next_xid() for _ in range(3)] == [("GPU-b", 79), ("GPU-a", 31), None]
    probed.close()


def test_a_cards_place_is_written_as_the_kernel_writes_it(box: NvmlBox) -> None:
    box.add_gpu("GPU-a")
    box.say("pci|0|0|3b|0")
    probed = ProbedDevices(box.start_probe())
    assert probed.devices()[0].pci == "0000:3b:00"
    probed.close()
