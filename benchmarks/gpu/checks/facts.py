"""NVML beside nvidia-smi; and GPUs in parts (MIG) or shared (MPS)."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.gpu.check import Check, CouldNot, Finding, NoneHere, broken_unless
from benchmarks.gpu.jobs.cuda import Driver
from benchmarks.gpu.machine import cuda_words
from benchmarks.gpu.site import ASK_S, Site
from benchmarks.gpu.watching import GPU, Watched, number, smi, wait
from dlq_nodeagent.devices.port import MIB

NAMED = ("index", "uuid", "name", "memory.total", "driver_version", "pci.bus_id")
# Fields of nvidia-smi, its switch for them, and the symptom that dlq has where they are not 0.
ROWS = "--query-remapped-rows"
COUNTED = {
    "ecc.errors.uncorrected.volatile.total": (GPU, "ecc_uncorrected"),
    "remapped_rows.pending": (ROWS, "row_remap_pending"),
    "remapped_rows.failure": (ROWS, "row_remap_failed"),
}
NEAR_CELSIUS = 5


def identities(site: Site) -> Iterator[Finding]:
    """Each GPU is the same by both ways: number, uuid, model, memory, driver, place."""
    watched = Watched()
    devices, rows = watched.devices.devices(), smi(NAMED)
    broken_unless(len(rows) == len(devices), f"{len(devices)} GPUs, nvidia-smi has {len(rows)}")
    for device, row in zip(devices, rows, strict=True):
        mine = [
            str(device.index), device.uuid, device.model_name, str(device.memory_bytes // MIB),
            watched.devices.driver_version(), device.pci,
        ]  # fmt: skip
        row[-1] = row[-1].lower()[4:].removesuffix(".0")  # 00000000:3B:00.0 is 0000:3b:00
        wrong = [
            f"{name}: dlq has {its!r}, nvidia-smi {theirs!r}"
            for name, its, theirs in zip(NAMED, mine, row, strict=True)
            if its != theirs
        ]
        broken_unless(not wrong, "; ".join(wrong))
    first = watched.first
    yield Finding("type in dlq", first.gpu_type)
    yield Finding("memory", round(first.memory_bytes / 1024**3, 1), "GiB")
    yield Finding("driver", watched.devices.driver_version())
    yield Finding("CUDA of the driver", cuda_words(Driver().version()))
    uuids = Driver().uuids()
    broken_unless(
        first.uuid in uuids, f"CUDA lists {', '.join(uuids)}, and NVML {first.uuid} first"
    )


def health(site: Site) -> Iterator[Finding]:
    """The fields of health are told, agree with nvidia-smi, and come through to `dlq gpus`."""
    watched = Watched()
    vitals = watched.devices.vitals()[0]
    told = {code for code, _ in vitals.symptoms}
    yield Finding("symptoms", ", ".join(sorted(told)) or "none")
    errors = sorted(code for code in told if code.startswith("nvml_error"))
    broken_unless(not errors, f"NVML answers with errors: {', '.join(errors)}")
    yield Finding("odd answers of NVML", dict(vitals.symptoms).get("odd_answer", "none"))
    celsius = _told_by_smi("temperature.gpu", GPU)
    for field, (switch, code) in COUNTED.items():
        count = _told_by_smi(field, switch)
        yield Finding(field, "not told" if count is None else int(count))
        holds = count is None or bool(count) == (code in told)
        broken_unless(holds, f"{field} is {count}, and dlq has the symptoms {sorted(told)}")
    for name, found in (
        ("temperature", vitals.temperature_celsius),
        ("utilization", vitals.utilization_percent),
        ("used memory", None if vitals.usage is None else vitals.usage.used_memory_bytes // MIB),
    ):
        yield Finding(name, "not told" if found is None else found)
    if celsius is not None and vitals.temperature_celsius is not None:
        apart = abs(celsius - vitals.temperature_celsius)
        broken_unless(apart <= NEAR_CELSIUS, f"{apart:g} degrees apart from nvidia-smi")
    wait(
        lambda: site.gpu()["used_memory_bytes"] is not None,
        20,
        "dlq gpus shows the used memory",
        ASK_S,
    )
    shown = site.gpu()
    yield Finding("in dlq gpus", shown["state"])
    codes = {one["code"] for one in shown["conditions"]}
    lost = {code for code in told if code not in codes}
    broken_unless(not lost, f"dlq gpus does not show {', '.join(sorted(lost))}")


def _told_by_smi(field: str, switch: str) -> float | None:
    """One field of the first GPU, asked for alone: one that it does not know spoils the others."""
    try:
        return number(smi((field,), switch)[0][0])
    except (CouldNot, IndexError):
        return None


def parts(site: Site) -> Iterator[Finding]:
    """A GPU in parts (MIG), or shared by an MPS server, is named so and given to no job."""
    vitals = Watched().devices.vitals()[0]
    modes = [row[0] for row in smi(("mig.mode.current",))]
    yield Finding("MIG by nvidia-smi", ", ".join(modes))
    cut = modes[0] == "Enabled"
    told = dict(vitals.symptoms)
    broken_unless(cut == ("mig_mode" in told), f"MIG is {modes[0]}, and dlq has {sorted(told)}")
    words = "" if vitals.usage is None else vitals.usage.words
    shared = "MPS" in words
    yield Finding("MPS by NVML", "yes" if shared else "no")
    if not cut and not shared:
        raise NoneHere("no GPU here is in parts or shared")
    wait(lambda: site.gpu()["state"] == "withheld", 20, "dlq gpus shows the GPU as withheld", ASK_S)
    shown = site.gpu()["conditions"]
    yield Finding("in dlq gpus", "; ".join(f"{one['code']}: {one['detail']}" for one in shown))


CHECKS = (
    Check(
        "facts",
        "NVML and nvidia-smi name the same GPUs, and CUDA has them.",
        ("nvml", "smi", "cuda"), 15, identities,
    ),
    Check(
        "health",
        "The fields of health are told, agree with nvidia-smi, and come through to `dlq gpus`.",
        ("nvml", "smi"), 30, health,
    ),
    Check(
        "parts",
        "A GPU in parts (MIG), or shared by an MPS server, is named so and given to no job.",
        ("nvml", "smi"), 15, parts,
    ),
)  # fmt: skip
