#!/usr/bin/env python3
"""An example of an operator's program for provider = "exec": machines here are agents of this
machine, each in a directory of its own.

`cost_provider.py ROOT start|stop|list`, called by a one-line script of the pool. Every begun
machine is written down first, so that a call that is killed half way is found again. Each call is a
line of ROOT/bill.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
Asked = dict[str, Any]
Told = dict[str, Any]
_AGENT = """\
[node]
name = "{node_id}"
state_dir = "{state_dir}"
devices = "fake:{gpu_count}x{model}"
pool = "{pool}"
instance = "{instance_id}"

[jobs]
allow_root = {allow_root}
startup_grace = "3s"

[reconnect]
jitter = "1s"
longest = "1s"
"""


def start(machines: Path, asked: Asked) -> Told:
    """The machine of this request: a new one, or the one that there is."""
    home = machines / asked["request_id"]
    fault = machines / "fail-half-way"
    if not home.exists():
        home.mkdir(parents=True)
        (home / "instance").write_text(f"host-{os.getpid()}")
    instance_id = (home / "instance").read_text()
    if not alive(home):
        run_agent(home, asked, instance_id)
    if fault.exists():  # once: it boots, and its node never appears
        fault.unlink()
        raise SystemExit("the provider's API did not answer")
    return {"instance_id": instance_id}


def run_agent(home: Path, asked: Asked, instance_id: str) -> None:
    """The boot of a machine: the agent joins with its token, then serves."""
    config = home / "agent.toml"
    facts = {key: asked[key] for key in ("node_id", "gpu_count", "gpu_type", "pool")}
    root = "true" if os.getuid() == 0 else "false"
    config.write_text(
        _AGENT.format(
            **facts,
            model=asked["gpu_type"].upper(),
            instance_id=instance_id,
            state_dir=home / "state",
            allow_root=root,
        )
    )
    (home / "token").write_text(asked["token"])
    (home / "token").chmod(0o600)
    agent = f"'{BIN}/dlq-nodeagent'"
    boot = (
        f"{agent} join - --master {asked['join_address']} --wait 1m --config {config} < "
        f"{home}/token "
        f"&& rm {home}/token && exec {agent} run --config {config}"
    )
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", boot],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (home / "pid").write_text(str(process.pid))


def stop(machines: Path, asked: Asked) -> Told:
    """Gone, and all that ran there."""
    home = machines / asked["request_id"]
    if alive(home):
        with suppress(ProcessLookupError):
            os.killpg(int((home / "pid").read_text()), signal.SIGKILL)
    if home.exists():
        home.rename(machines / f".gone-{asked['request_id']}-{time.monotonic_ns()}")
    return {"gone": True}


def list_(machines: Path, asked: Asked) -> Told:
    """All that are there, or coming."""
    found = [path for path in sorted(machines.iterdir()) if (path / "instance").exists()]
    return {
        "machines": [
            {"request_id": path.name, "instance_id": (path / "instance").read_text()}
            for path in found
            if not path.name.startswith(".")
        ]
    }


def alive(home: Path) -> bool:
    """Whether its agent runs."""
    try:
        os.kill(int((home / "pid").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def main() -> int:
    root, verb = Path(sys.argv[1]), sys.argv[2]
    machines = root / "machines"
    machines.mkdir(exist_ok=True)
    asked = json.load(sys.stdin)
    with (root / "bill").open("a") as bill:
        fcntl.flock(bill, fcntl.LOCK_EX)  # two calls for one machine do not cross
        if verb != "list":
            bill.write(f"{verb} {asked['request_id']}\n")
            bill.flush()
        print(json.dumps({"start": start, "stop": stop, "list": list_}[verb](machines, asked)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
