"""The master's side of the relay leaves no process behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dlq_common.errors import Unavailable
from dlq_common.identity.pki import CertifiedIdentity, Role
from dlq_master.relay import child
from dlq_master.relay.child import RelayChild
from support.waiting import wait_until

ALICE = CertifiedIdentity("alice", Role.USER, "lab", "01", 0.0)
SILENT = "import os, sys, time; os.symlink(str(os.getpid()), sys.argv[1]); time.sleep(600)"
NONSENSE = SILENT.replace("time.sleep", "print('{', flush=True); time.sleep")


def no_certificate() -> child.ShownCertificate:
    raise AssertionError("no relay was ready to be told")


def relay_of(program: str, at: Path, monkeypatch: pytest.MonkeyPatch) -> RelayChild:
    monkeypatch.setattr(child, "COMMAND", (sys.executable, "-c", program, str(at)))
    return RelayChild("127.0.0.1:0", "", no_certificate)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until_gone(pid: int) -> None:
    await asyncio.to_thread(wait_until, lambda: is_gone(pid), what="the end of the process")


async def test_a_start_whose_caller_leaves_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "pid"
    relay = relay_of(SILENT, at, monkeypatch)
    asking = asyncio.create_task(relay.expect(ALICE, "n1"))
    await asyncio.to_thread(wait_until, at.is_symlink, what="the process")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until_gone(int(at.readlink().name))


async def test_a_process_that_says_no_port_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "pid"
    relay = relay_of(NONSENSE, at, monkeypatch)
    with pytest.raises(Unavailable, match="does not start"):
        await relay.expect(ALICE, "n1")
    await until_gone(int(at.readlink().name))
    with pytest.raises(Unavailable, match="rests"):
        await relay.expect(ALICE, "n1")
