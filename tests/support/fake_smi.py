"""A fake nvidia-smi over the machine of fake_nvml.c: `--query-gpu=FIELDS --format=csv,...`, and
`--query-remapped-rows=FIELDS`. Each refuses the fields of the other, as the real one does.

It reads the text file itself and asks no library, so that it is another witness than NVML.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NOTHING = "[N/A]"
MIB = 1024**2
# The field of nvidia-smi and the word of the text file with the same number.
PLAIN = {
    "ecc.errors.uncorrected.volatile.total": "ecc",
    "temperature.gpu": "temperature",
}
ROWS = "--query-remapped-rows"
FLAGS = {"remapped_rows.pending": "remap_pending", "remapped_rows.failure": "remap_failure"}


def main() -> None:
    """Print one line for each GPU."""
    lines = [line.split("|") for line in Path(os.environ["FAKE_NVML"]).read_text().split("\n")]
    switch, _, named = sys.argv[1].partition("=")
    fields = named.split(",")
    for field in fields:
        if (field in FLAGS) != (switch == ROWS):
            sys.exit(f'Field "{field}" is not a valid field to query.')
    gpus = [words for words in lines if words[0] == "gpu"]
    for index, gpu in enumerate(gpus):
        told = {words[0]: words[2:] for words in lines if words[1:2] == [str(index)]}
        driver = next(words[1] for words in lines if words[0] == "driver")
        sys.stdout.write(
            ", ".join(_value(field, index, gpu, told, driver) for field in fields) + "\n"
        )


def _value(field: str, index: int, gpu: list[str], told: dict[str, list[str]], driver: str) -> str:
    for each in os.environ.get("FAKE_SMI_LIE", "").split(";"):
        name, _, lie = each.partition("=")
        if field == name:
            return lie
    if field in PLAIN:
        return told.get(PLAIN[field], ["0" if "ecc" in field else NOTHING])[0]
    if field in FLAGS:
        return "Yes" if FLAGS[field] in told else "No"
    busy = _busy(index)
    pci = told.get("pci", ["0", f"{index + 1:x}", "0"])
    return {
        "index": str(index),
        "uuid": gpu[1],
        "name": gpu[2],
        "memory.total": str(int(gpu[3]) // MIB),
        "driver_version": driver,
        "pci.bus_id": "{:08X}:{:02X}:{:02X}.0".format(*(int(word, 16) for word in pci)),
        "mig.mode.current": {"1": "Enabled", "0": "Disabled"}.get(
            told.get("mig", [""])[0], NOTHING
        ),
        "utilization.gpu": str(busy),
        "power.draw": "650.00" if busy else f"{int(told.get('power', ['0'])[0]) / 1000:.2f}",
        "clocks.sm": "1980" if busy else told.get("clock", [NOTHING])[0],
    }[field]


def _busy(index: int) -> int:
    """As the living processes of fake_cuda.c tell."""
    found = [0]
    for path in Path(os.environ["FAKE_CUDA"]).iterdir():
        if path.name.isdigit() and Path("/proc", path.name).exists():
            holds = [line.split("|") for line in path.read_text().splitlines()]
            found += [int(words[4]) for words in holds if words[1] == str(index)]
    return max(found)


if __name__ == "__main__":
    main()
