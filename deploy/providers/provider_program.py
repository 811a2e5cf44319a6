"""The frame of the provider programs in this directory: `PROGRAM SETTINGS start|stop|list|check`.

A pool names a program of two lines, which an operator writes: `#!/bin/sh`, and `exec python3` with
the path of one of these, the path of its settings, and `"$@"`. The request is one JSON object on
standard input, and the answer one on standard output (docs/sites/engines.md). These programs need
Python 3.11 and its standard library.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class RefusedCall(Exception):
    """A call that failed, in one line for the master's log."""


class MachineRequest(NamedTuple):
    """The request of a `start`."""

    request_id: str
    pool: str
    node_id: str
    gpu_count: int
    join_address: str
    token: str


class MachineMaker(Protocol):
    """A kind of machine. Each method raises RefusedCall."""

    def start(self, asked: MachineRequest) -> str:
        """Make the machine of this request, or find it. Returns its instance id."""
        ...

    def stop(self, request_id: str) -> bool:
        """Give it back. Returns whether it is gone already."""
        ...

    def listed(self, pool: str) -> list[tuple[str, str]]:
        """The request id and the instance id of each machine of a pool that is there or coming."""
        ...

    def check(self, asked: MachineRequest) -> list[str]:
        """Try a start without effect. Returns a line for each thing that was tried."""
        ...


def run_program(make: Callable[[Mapping[str, Any]], MachineMaker]) -> None:
    """Answer the call of this process. Exit codes: 0; 1 with a line on standard error; 64 usage."""
    if len(sys.argv) != 3 or sys.argv[2] not in ("start", "stop", "list", "check"):
        print(
            f"usage: {Path(sys.argv[0]).name} SETTINGS.toml start|stop|list|check", file=sys.stderr
        )
        raise SystemExit(64)
    try:
        maker = make(_settings(Path(sys.argv[1])))
        if sys.argv[2] == "check":
            print("\n".join(maker.check(_TRIAL)))
        else:
            print(json.dumps(_answered(maker, sys.argv[2], json.load(sys.stdin))))
    except (RefusedCall, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        print(what.replace("\n", " "), file=sys.stderr)
        raise SystemExit(1) from None


def setting(settings: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A setting, of the type of its default; without one it must be there, as a text."""
    found = settings.get(name, default)
    if found is None:
        raise RefusedCall(f"the settings lack {name}")
    wanted = str if default is None else type(default)
    if not isinstance(found, wanted) or (isinstance(found, bool) and wanted is not bool):
        raise RefusedCall(f"{name} in the settings must be {wanted.__name__}")
    return found


def join_script(
    asked: MachineRequest, *, token_file: str, state: str, instance: str, config: str = ""
) -> str:
    """Shell lines that join the machine and then serve. `instance` is a word of the shell."""
    name, agent = shlex.quote(asked.node_id), "dlq-nodeagent"
    more = f" --config {shlex.quote(config)}" if config else ""
    return (
        f"{agent} join - --master {shlex.quote(asked.join_address)} --wait 10m --name {name}"
        f"{more} --state-dir {state} <{token_file} || exit 1\n"
        f"exec {agent} run{more} --state-dir {state} --pool {shlex.quote(asked.pool)}"
        f" --instance {instance}\n"
    )


def command_json(words: list[str], *, text: str = "") -> Any:
    """Run a vendor's command, and read its standard output as JSON; None: it printed nothing."""
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RefusedCall(f"{words[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        raise RefusedCall(f"{words[0]} ended with {done.returncode}: {said[:300]}")
    return json.loads(done.stdout) if done.stdout.strip() else None


_TRIAL = MachineRequest(
    "dlq-check-0-0", "dlq-check", "dlq-check-0-0", 1, "master.example:7321", "none"
)


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise RefusedCall(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise RefusedCall(f"{path}: {error}") from None


def _answered(maker: MachineMaker, verb: str, told: Mapping[str, Any]) -> dict[str, Any]:
    if verb == "start":
        asked = MachineRequest(**{name: told[name] for name in MachineRequest._fields})
        return {"instance_id": maker.start(asked)}
    if verb == "stop":
        return {} if maker.stop(told["request_id"]) else {"gone": False}
    machines = maker.listed(told["pool"])
    return {"machines": [{"request_id": one, "instance_id": two} for one, two in machines]}
