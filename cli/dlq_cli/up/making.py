"""Making a box and starting it: each step looks first whether it is done, so all may be repeated.

The programs of the daemons do the work: `dlq-master init` founds the cluster, and `dlq-nodeagent
join` makes the node. A box whose making was cut short goes on from there.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dlq_cli.up.keeper import GPUS, environment_of
from dlq_cli.up.place import Box
from dlq_cli.up.processes import (
    AGENT,
    MASTER,
    keeper_lives,
    missing,
    program,
    read_running,
    wait_for,
)
from dlq_common.errors import ConfigError, TryAgain
from dlq_common.text.addresses import split_address

USUAL_PORT = 7320  # of the API; the join port is the next one
# For further users of a machine; below the ports that the kernel gives away by itself.
LATER_PORTS = range(7340, 7600, 2)
PATIENCE_S = 120.0  # for a slow machine: a start takes about two seconds
GIVE_UP_AFTER = 4  # starts of a part that ended each time
_TAIL_BYTES = 16 * 1024
_AGENT = """\
# Made by `dlq up`. Every key and its default: dlq-nodeagent run --check-config
[node]
name = "{name}"
state_dir = "{state_dir}"

[jobs]
allow_root = {root}  # needed where the agent runs as root itself; shown with the node
"""
_MASTER = """
# Jobs run with the rights of the user of `dlq up`, so nobody else may log in here.
[identity]
auto_users = false
"""


def check_parts(*parts: str) -> None:
    """ConfigError when this installation lacks the packages of one of these parts."""
    for part in parts:
        if name := missing(part):
            raise ConfigError(
                f"`dlq up` needs more packages: {name} is not installed",
                hint="pip install 'dlq[all]'",
            )


def check_account() -> None:
    """ConfigError for a number without an account, as in some containers: jobs need a name."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise ConfigError(
            f"uid {os.geteuid()} has no account on this host", hint="run as a user of /etc/passwd"
        ) from None


def free_ports(wished: int | None) -> tuple[int, int]:
    """Ports for the API and for joins: the wished one, else the usual one, else later ones."""
    if wished is not None and not (_is_free(wished) and _is_free(wished + 1)):
        raise ConfigError(
            f"port {wished} or {wished + 1} is in use by another program",
            hint="--port names another",
        )
    if wished is not None:
        return wished, wished + 1
    for port in (USUAL_PORT, *LATER_PORTS):
        if _is_free(port) and _is_free(port + 1):
            return port, port + 1
    raise ConfigError("no port is free for the master", hint="--port names one")


def check_ports(box: Box) -> None:
    """Before a keeper is started: another program may have taken a port meanwhile."""
    for address in () if box.joined or keeper_lives(box) else (box.api, box.join):
        if not _is_free(split_address(address)[1]) and not _is_ours(box):
            raise ConfigError(
                f"port {split_address(address)[1]} is in use by another program, and "
                f"the cluster {box.cluster} is known by it",
                hint="end that program (`ss -ltnp` names it), or move the box: dlq up --port N",
            )


def _is_ours(box: Box) -> bool:
    """Whether the master of a keeper that was killed still has the ports."""
    former = read_running(box)
    return former is not None and any(each.lives() for each in former.parts.values())


def gpus_of_another() -> int | None:
    """The user who manages the real GPUs of this machine by `dlq up`; None if nobody does."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(GPUS)
        except OSError:
            return None
        raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(raw[4:8], sys.byteorder)


def found(box: Box) -> None:
    """Found the cluster, unless it is there."""
    if box.is_founded:
        return
    shutil.rmtree(box.master, ignore_errors=True)  # a founding that was cut short: nothing is in it
    _run(
        "dlq-master", "init", "--cluster", box.cluster, "--state-dir", str(box.master),
        "--checkpoint-root", str(box.checkpoints), "--listen", box.api, "--join-listen", box.join,
    )  # fmt: skip
    with (box.master / "master.toml").open("a") as file:
        file.write(_MASTER)


def configure_agent(box: Box) -> None:
    """The agent's file, unless it is there: a user may have changed it."""
    path = box.state / "nodeagent.toml"
    if not path.exists():
        root = "true" if os.geteuid() == 0 else "false"
        path.write_text(_AGENT.format(name=box.node, state_dir=box.agent, root=root))


def join(box: Box, token: str, address: str) -> None:
    """Make this machine a node; the token comes by stdin, so that no other user sees it."""
    _run(
        "dlq-nodeagent", "join", "-", "--master", address, "--wait", "20s",
        "--config", str(box.state / "nodeagent.toml"),
        given=f"{token}\n", environment=environment_of(box, AGENT),
    )  # fmt: skip


def start_keeper(box: Box) -> None:
    """Start the keeper in the background, unless one lives."""
    if keeper_lives(box):
        return
    words = [sys.executable, "-P", "-m", "dlq_cli.up.keeper", str(box.home)]
    try:
        with box.log("keeper").open("ab") as log:
            subprocess.Popen(
                words, cwd=box.state, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"{error.filename or box.state}: {error.strerror}") from None
    wait_for_keeper(box, lambda: last_words(box.log("keeper")))


def wait_for_keeper(box: Box, why: Callable[[], str]) -> None:
    """Until a keeper holds the lock. TryAgain with these words when none does."""
    if not wait_for(lambda: keeper_lives(box), PATIENCE_S):
        raise TryAgain(f"the keeper did not start: {why()}")


def stop_keeper(box: Box) -> None:
    """End the keeper, and with it its parts; also those of a keeper that was killed."""
    running = read_running(box)
    if running is None:
        return
    if keeper_lives(box):
        running.keeper.end(3 * PATIENCE_S)
    for part in ("page", AGENT, MASTER):
        if part in running.parts:
            running.parts[part].end()


def follow_record(box: Box) -> None:
    """Save the record, and wait until a living keeper has started the parts that it changes."""
    box.save()
    running = read_running(box)
    if running is not None and keeper_lives(box):
        running.keeper.send(signal.SIGHUP)
        wait_for(lambda: _follows(box), PATIENCE_S)


def _follows(box: Box) -> bool:
    running = read_running(box)
    return not keeper_lives(box) or (running is not None and running.record == box.mark)


def wait_for_part(box: Box, part: str, holds: Callable[[], bool]) -> None:
    """Until it holds. An error with the part's own words when it ends again and again."""
    before = _starts(box, part)
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        if _starts(box, part) - before >= GIVE_UP_AFTER:
            log = box.log(part)
            raise ConfigError(f"the {part} ends at once: {last_words(log)}", hint=f"see {log}")
        if time.monotonic() > end_s:
            raise TryAgain(f"the {part} is not ready after {PATIENCE_S:.0f} s", hint="dlq up")
        time.sleep(0.1)


def opened(box: Box, address: str) -> Box:
    """The same box with a master that other machines can reach at this address."""
    ports = [split_address(each)[1] for each in (box.api, box.join)]
    api, joining = (f"0.0.0.0:{port}" for port in ports)
    return replace(box, api=api, join=joining, address=address)


def own_address() -> str:
    """The address from which this machine reaches others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of a net that nobody has
            return str(probe.getsockname()[0])
        except OSError:
            raise ConfigError(
                "this machine has no way to others", hint="--address names its address"
            ) from None


def last_words(log: Path) -> str:
    """The last error of a log: plain words of a program, or the event of a line in JSON."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return "it has no log"
    for line in reversed(lines):
        if not line.startswith("{"):
            return line.strip()
        try:
            facts = json.loads(line)
        except ValueError:
            continue
        if facts.get("level") in ("error", "critical"):
            return " ".join(str(facts[key]) for key in ("event", "error", "cause") if key in facts)
    return "its log says nothing"


def _starts(box: Box, part: str) -> int:
    running = read_running(box)
    return 0 if running is None else running.starts.get(part, 0)


def _is_free(port: int) -> bool:
    if not 0 < port < 65_536:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _run(
    name: str, *arguments: str, given: str = "", environment: dict[str, str] | None = None
) -> str:
    """The output of one of our programs. ConfigError with its own words when it fails."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("DLQ_")}
    done = subprocess.run(
        [program(name), *arguments], input=given, env=environment or plain,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        what, _, hint = done.stderr.strip().partition("\n")
        raise ConfigError(what or f"{name} ended with {done.returncode}", hint=hint)
    return done.stdout
