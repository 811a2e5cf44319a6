"""A real agent under a master that has gone mad: no crash, no growth, no rank harmed or made.

`make fuzz MESSAGES=1000000 SEED=1` says a tenth of its messages to an agent.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attack.extent import SEED
from dlq.v1 import agent_service_pb2 as wire
from dlq_nodeagent.execs import serving
from dlq_nodeagent.line import relay, samples
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence
from fuzz.hostile_master import HostileMaster, Said
from support.agent_process import AgentProcess
from support.proofs import proved
from support.stub_master import launch_command
from support.waiting import wait_until

MESSAGES = int(os.environ.get("MESSAGES", "1000000")) // 10
SHORT = 2_000
AT_ONCE = 500
ROUNDS = 10  # the agent is looked at after each
JOBS = (17, 18)
OWN_FILES = 40  # logs, locks, loops, pipes of its shims, and its line to the master
OF_A_COMMAND = 5  # its leash, its three pipes, and its guard
MOST_FILES = (
    OWN_FILES
    + 4 * serving.MOST_AT_ONCE  # streams of commands, refusals among them
    + OF_A_COMMAND * serving.MOST_OF_JOB * len(JOBS)
    + 2 * relay._MOST_AT_ONCE  # streams of output, likewise
    + samples._MOST_AT_ONCE
)
"""What the agent allows itself at a time. A leak shows when it is at rest."""
OWN_MIB = 96  # with the agent's messages and what allocators keep
MIB_OF_A_STREAM = 2  # the largest word that this master says; each stream may hold one unread
MOST_LEFT = 30
"""At rest, beside its own: errors that hold each other, until Python looks at old objects."""
REST_S = 180.0  # longer than an agent waits for the end of a stream, or for a lost caller
OUTSIDE = ("/", "/etc", "/root", "/usr/local/bin")
"""Folders in which a broken master might have something made."""


def seen(agent: AgentProcess) -> dict[str, list[str]]:
    """What lies where nothing may be made."""
    beside = sorted(path.name for path in agent.state_dir.parent.iterdir())
    return {"beside": beside} | {each: sorted(os.listdir(each)) for each in OUTSIDE}


def facts(agent: AgentProcess) -> dict[str, int]:
    """The size of the agent, and the things that it holds."""
    own = Path(f"/proc/{agent.pid}")
    status = own.joinpath("status").read_text().splitlines()
    told = {line.partition(":")[0]: line.split()[1] for line in status if line.startswith("V")}
    threads = sum(1 for _ in own.joinpath("task").iterdir())
    files = len(os.listdir(own / "fd"))
    return {"mib": int(told["VmRSS"]) >> 10, "threads": threads, "files": files}


def main_pids(agent: AgentProcess) -> dict[str, int]:
    """The main processes of the attempts that were ever started."""
    found = {}
    for path in (agent.state_dir / "attempts").glob("*/started.json"):
        found[path.parent.name] = int(json.loads(path.read_text())["main_pid"])
    return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[HostileMaster, AgentProcess]]:
    with HostileMaster(SEED) as master:
        agent = AgentProcess(tmp_path, master)
        assert agent.join(master.token()).returncode == 0
        yield master, agent
        agent.clean_up()


def speak(master: HostileMaster, words: Said) -> None:
    """Some words. Those after one that ends the session are lost with it: only spoken ones
    count.
    """
    beats = len(master.heartbeats)
    master.say(words.words(AT_ONCE))
    wait_until(lambda: len(master.heartbeats) > beats, what="it beats")
    master.forget()


def hostile(master: HostileMaster, agent: AgentProcess, messages: int) -> dict[str, Any]:
    """The whole story; its figures."""
    with master.changed:
        for at, job in enumerate(JOBS):
            launch = launch_command(job, "/bin/sleep", "3600", epoch=master.epoch)
            launch.gpu_indexes[:] = [at]
            master.wanted.append(launch)
    agent.start()
    for job in JOBS:
        master.report(str(job), wire.RANK_PHASE_STARTED)
    before, pids, began_s = seen(agent), main_pids(agent), time.monotonic()
    own = facts(agent)["files"]
    ranks = {RankKey(str(job), 1, 0): Fence(master.epoch, 1) for job in JOBS}
    words = Said(str(SEED), ranks, epoch=master.epoch)
    sizes: list[dict[str, int]] = []
    while master.said < messages:
        speak(master, words)
        if master.said * ROUNDS >= messages * len(sizes):
            sizes.append(facts(agent))
    assert agent.is_alive(), agent.output.read_text()[-3_000:]
    assert main_pids(agent) == pids, (main_pids(agent), pids)
    assert all(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert seen(agent) == before
    assert "Traceback" not in agent.output.read_text()
    return {
        "agent_messages": master.said, "sessions": master.sessions, **words.counts,
        **{f"relays_{name}": count for name, count in master.relays.items()},
        "agent_mib": [each["mib"] for each in sizes],
        "agent_own_files": own,
        "agent_files": [each["files"] for each in sizes],
        "agent_threads": [each["threads"] for each in sizes],
        "agent_s": round(time.monotonic() - began_s),
    }  # fmt: skip


@pytest.mark.long("fuzz/test_agent.py", "unit/nodeagent/execs/test_exec_talk.py")
def test_an_agent_outlives_its_broken_master(site: tuple[HostileMaster, AgentProcess]) -> None:
    found = hostile(*site, SHORT)
    print(json.dumps(found))  # noqa: T201 - the figures of the run


@pytest.mark.torture
def test_an_agent_under_a_broken_master_does_not_grow(
    site: tuple[HostileMaster, AgentProcess],
) -> None:
    found = hostile(*site, MESSAGES)
    print(json.dumps(found))  # noqa: T201 - the figures of the run
    files = max(found["agent_files"])
    assert files < MOST_FILES
    assert max(found["agent_mib"]) < OWN_MIB + MIB_OF_A_STREAM * (files - found["agent_own_files"])
    wait_until(
        lambda: facts(site[1])["files"] <= found["agent_own_files"] + MOST_LEFT,
        what="nothing is left of any stream", timeout_s=REST_S,
    )  # fmt: skip
    proved("messages to an agent", crashes=0, ranks_harmed=0, ranks_made=0, **found)
