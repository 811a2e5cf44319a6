"""Answers questions about the devices of this machine, one JSON line each, for `ProbedDevices`.

Run as `python devices_probe.py WORD`: a process of its own, so that the real pynvml loads the
fake libnvidia-ml.so.1 that LD_LIBRARY_PATH points to.
"""

import dataclasses
import json
import sys
from typing import Any

from dlq_nodeagent.devices.choose import open_devices
from dlq_nodeagent.devices.port import DeviceFault, Devices, DevicesUnavailable


def answer(devices: Devices, question: list[str]) -> Any:
    """The answer to one question, as plain values."""
    match question:
        case ["devices"]:
            return [dataclasses.asdict(device) for device in devices.devices()]
        case ["usage", uuid]:
            return dataclasses.asdict(devices.usage(uuid))
        case ["vitals"]:
            return [dataclasses.asdict(vitals) for vitals in devices.vitals()]
        case ["samples"]:
            return [dataclasses.asdict(sample) for sample in devices.samples()]
        case ["next_xid"]:
            return devices.next_xid()
        case ["driver_version"]:
            return devices.driver_version()
        case _:
            raise AssertionError(f"no such question: {question}")


def main() -> None:
    """Serve until stdin ends; a refusal to open ends it at once with the text on stderr."""
    try:
        devices = open_devices(sys.argv[1], node_name="probe")
    except DevicesUnavailable as error:
        sys.exit(str(error))
    for line in sys.stdin:
        try:
            reply = {"ok": answer(devices, json.loads(line))}
        except DeviceFault as fault:
            reply = {"fault": [fault.uuid, fault.reason]}
        except KeyError as error:
            reply = {"key_error": str(error.args[0])}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
