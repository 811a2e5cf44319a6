"""How a box is: its parts, and how far its jobs are kept from each other and from their user."""

from __future__ import annotations

import json
import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlq_cli.up.place import Box
from dlq_cli.up.processes import (
    PAGE,
    PARTS,
    jobs_here,
    keeper_lives,
    missing,
    read_running,
)

PAGE_FILE = "web.json"  # of dlq_web: the page's address
_LARGEST_LOG = 16 * 1024 * 1024
_STARTED = "agent_started"
# Warnings of an agent at its start, and the words of `dlq up` for them.
_OPEN = {
    "no_cgroups": "memory, cores and processes of a job are not limited",
    "cores_not_exclusive": "jobs share all cores",
    "gpus_not_exclusive": "a job can open the GPUs of another one; CUDA_VISIBLE_DEVICES names its "
    "own",
}


def box_facts(box: Box) -> dict[str, Any]:
    """The parts and their processes, for programs."""
    running = read_running(box)
    known = {} if running is None else running.parts
    keeper = keeper_lives(box)
    parts = [
        {
            "part": part,
            "state": "runs" if part in known and known[part].lives() else "down",
            "pid": known[part].pid if part in known and known[part].lives() else None,
            "starts": 0 if running is None else running.starts.get(part, 0),
        }
        for part in parts_of(box)
    ]
    return {
        # Jobs need no page: one that is being started anew is no fault of the box.
        "state": "up"
        if keeper and all(one["pid"] for one in parts if one["part"] != PAGE)
        else "down",
        "cluster": box.cluster or None,
        "joined": box.joined,
        "devices": box.devices,
        "directory": str(box.state),
        "address": box.api or None,
        "page": page_address(box),
        "keeper_pid": running.keeper.pid if running is not None and keeper else None,
        "parts": parts,
        "ranks_here": len(jobs_here(box)),
    }


def parts_of(box: Box) -> list[str]:
    """The parts that this box has."""
    if box.joined:
        return ["agent"]
    return [part for part in PARTS if part != PAGE or not missing(PAGE)]


def box_text(facts: dict[str, Any]) -> str:
    """The same for people."""
    of = "joined to another box" if facts["joined"] else f"cluster {facts['cluster']}"
    lines = [f"{facts['state']}: {of}, devices {facts['devices']}, files in {facts['directory']}"]
    keeper = facts["keeper_pid"]
    lines.append(
        f"  keeper  {f'runs    process {keeper}' if keeper else 'down    dlq up starts it'}"
    )
    for each in facts["parts"]:
        process = f"process {each['pid']}" if each["pid"] else ""
        again = f", started {each['starts']} times" if each["starts"] > 1 else ""
        lines.append(f"  {each['part']:<7} {each['state']:<7} {process}{again}".rstrip())
    if facts["page"]:
        lines.append(f"  page at {facts['page']}; `dlq up --page` prints a link that signs in")
    if facts["ranks_here"]:
        lines.append(f"  {facts['ranks_here']} processes of jobs live here")
    return "\n".join(lines)


def page_address(box: Box) -> str | None:
    """The address of the page; None without one that runs."""
    with suppress(OSError, ValueError, KeyError):
        address = json.loads((box.home / PAGE_FILE).read_bytes())["address"]
        running = read_running(box)
        if running is not None and PAGE in running.parts and running.parts[PAGE].lives():
            return str(address)
    return None


def isolation(box: Box) -> list[str]:
    """The sentences that a user of a box without root must know, from the agent's own warnings."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    lines = [f"jobs run as {user}: they can read and change all files of {user}"]
    if os.geteuid() == 0:
        lines = ["jobs run as root, on this machine only; deploy/install.sh is for other users"]
    return [*lines, *(f"{_OPEN[event]} ({why})" for event, why in _warned(box.log("agent")))]


def _warned(log: Path) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in log.read_bytes()[-_LARGEST_LOG:].splitlines():
            with suppress(ValueError):
                facts = json.loads(line)
                if facts.get("event") in _OPEN:
                    found[facts["event"]] = str(facts.get("why", ""))
    return list(found.items())
