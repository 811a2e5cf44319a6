"""A machine with a fake NVIDIA driver: compiles the C library, names its GPUs, asks about them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlq_nodeagent.devices.port import (
    Device,
    DeviceFault,
    DeviceProcess,
    DeviceSample,
    DeviceUsage,
    DeviceVitals,
)

HERE = Path(__file__).parent
H100_BYTES = 85_520_809_984
RESERVED_BYTES = 600 * 1024**2


def compile_fake_nvml(directory: Path, *flags: str) -> Path:
    """Compile `libnvidia-ml.so.1` into a directory to be named in LD_LIBRARY_PATH."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags, "-o", str(target)]
    subprocess.run([*command, str(HERE / "fake_nvml.c")], check=True)
    return directory


@dataclass
class NvmlBox:
    """What the fake driver shall say; `write` puts it where the library reads it."""

    library: Path
    facts: Path
    lines: list[str] = field(default_factory=lambda: ["driver|580.65.06"])

    def add_gpu(
        self, uuid: str, name: str = "NVIDIA H100 80GB HBM3", total: int = H100_BYTES
    ) -> None:
        """Put one more GPU into the machine."""
        self.say(f"gpu|{uuid}|{name}|{total}|0|{RESERVED_BYTES}")

    def say(self, line: str) -> None:
        """Add one line of the library's text file (see fake_nvml.c)."""
        self.lines.append(line)
        self.write()

    def unsay(self, line: str) -> None:
        """Take a line back."""
        self.lines.remove(line)
        self.write()

    def use(self, uuid: str, used: int) -> None:
        """Change the used memory of one GPU."""
        self.lines = [_with_used(line, uuid, used) for line in self.lines]
        self.write()

    def write(self) -> None:
        """Replace the file at once, so that the library never reads half of it."""
        draft = self.facts.with_suffix(".tmp")
        draft.write_text("\n".join(self.lines) + "\n")
        draft.rename(self.facts)

    def start_probe(self, word: str = "nvml", **env: str) -> subprocess.Popen[str]:
        """Start the probe process against this machine."""
        self.write()
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(self.library),
            "FAKE_NVML": str(self.facts),
        }
        return subprocess.Popen(
            [sys.executable, str(HERE / "devices_probe.py"), word],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | env,
        )


@dataclass
class ProbedDevices:
    """The Devices of a probe process, behind the same port."""

    process: subprocess.Popen[str]

    def devices(self) -> tuple[Device, ...]:
        """See the port."""
        return tuple(Device(**fields) for fields in self._ask("devices"))

    def usage(self, uuid: str) -> DeviceUsage:
        """See the port."""
        return _usage(self._ask("usage", uuid))

    def vitals(self) -> tuple[DeviceVitals, ...]:
        """See the port."""
        return tuple(_vitals(fields) for fields in self._ask("vitals"))

    def samples(self) -> tuple[DeviceSample, ...]:
        """See the port."""
        return tuple(DeviceSample(**fields) for fields in self._ask("samples"))

    def next_xid(self) -> tuple[str, int] | None:
        """See the port."""
        found = self._ask("next_xid")
        return None if found is None else (str(found[0]), int(found[1]))

    def driver_version(self) -> str:
        """See the port."""
        return str(self._ask("driver_version"))

    def close(self) -> None:
        """End the probe."""
        self.process.communicate(timeout=60)

    def _ask(self, *question: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "fault" in reply:
            raise DeviceFault(*reply["fault"])
        if "key_error" in reply:
            raise KeyError(reply["key_error"])
        return reply["ok"]


def _usage(fields: Any) -> DeviceUsage:
    processes = tuple(DeviceProcess(**process) for process in fields["processes"])
    return DeviceUsage(fields["used_memory_bytes"], processes, tuple(fields["mps_pids"]))


def _vitals(fields: Any) -> DeviceVitals:
    symptoms = tuple((code, words) for code, words in fields.pop("symptoms"))
    usage = fields.pop("usage")
    return DeviceVitals(symptoms=symptoms, usage=None if usage is None else _usage(usage), **fields)


def _with_used(line: str, uuid: str, used: int) -> str:
    fields = line.split("|")
    if fields[:2] == ["gpu", uuid]:
        fields[4] = str(used)
    return "|".join(fields)
