"""GPUs that have no device file cannot be told apart by it."""

from pathlib import Path

from dlq_nodeagent.devices.nodes import without_node
from dlq_nodeagent.devices.port import Device


def device(index: int, *, virtual: bool = False) -> Device:
    return Device(index, f"GPU-{index}", "h100-80gb", "H100", 80, virtual)


def test_a_gpu_without_a_device_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()  # a plain file is none
    for there in ([device(0)], [device(3)]):
        why = without_node(there, dev=tmp_path, driver_gpus=tmp_path)
        assert why == f"GPU {there[0].index} has no device file {tmp_path}/nvidia{there[0].index}"


def test_a_gpu_with_one_and_virtual_ones_are_fine(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    assert without_node([device(1, virtual=True)], dev=tmp_path, driver_gpus=tmp_path) == ""
    assert without_node([device(0)], dev=Path("/dev"), driver_gpus=tmp_path)  # none is there
