"""The CA changes while forwards are open, and while some have not heard of it yet."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq_client.line.identity import save_identity
from dlq_client.login import renew
from fault.test_forwards import forwarded, said
from support.echo_jobs import connected, echoed, echoing
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/master/relay/test_relay_authorities.py"),
]


class OtherHome(Daemons):
    """The same cluster, for a client with another identity directory."""

    def __init__(self, daemons: Daemons, home: Path) -> None:
        self._of, self._home = daemons, home

    def environment(self) -> dict[str, str]:
        return self._of.environment() | {"DLQ_HOME": str(self._home)}


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path, ("n1",)).up() as made:
        yield made


def log_in_anew(daemons: Daemons) -> None:
    """As `dlq` does it, which asks once an hour."""
    with daemons.connect() as line:
        save_identity(daemons.root / "home", renew(line))


def node_follows(daemons: Daemons) -> bool:
    told: dict[str, Any] = json.loads(daemons.said("admin", "ca", "status", "--json"))
    members = {one["name"]: str(one["state"]) for one in told["authority"]["members"]}
    return members["n1"] == "follows"


def roots(daemons: Daemons) -> int:
    """How many the node trusts."""
    return next((daemons.root / "n1").rglob("ca.crt")).read_bytes().count(b"BEGIN CERTIFICATE")


def test_open_lines_stay_and_new_ones_are_made_with_what_both_ends_know(daemons: Daemons) -> None:
    data = os.urandom(1 << 20)
    stale = OtherHome(daemons, daemons.root / "stale")
    with (
        echoing(daemons) as (job_id, port),
        forwarded(daemons, job_id, port, "--verbose") as (first, local),
        connected(local) as before,
    ):
        assert b"through the relay" in said(first)
        shutil.copytree(daemons.root / "home", daemons.root / "stale")
        daemons.said("admin", "ca", "rotate", "-y")
        wait_until(lambda: node_follows(daemons), what="the node follows", timeout_s=60.0)
        assert echoed(before, data) == data, "its line stays"
        with (
            forwarded(stale, job_id, port, "--verbose") as (late, late_local),
            connected(late_local) as line,
        ):
            assert echoed(line, data) == data
            way = said(late)
            assert b"through the master: the relay" in way, "it cannot know the node's certificate"
            assert echoed(line, data) == data
        log_in_anew(daemons)
        with (
            forwarded(daemons, job_id, port, "--verbose") as (second, again),
            connected(again) as between,
        ):
            assert b"through the relay" in said(second)
            assert echoed(between, data) == data
            wait_until(
                lambda: daemons.dlq("admin", "ca", "finish", "-y").code == 0,
                what="nobody uses the former CA",
                timeout_s=60.0,
            )
            assert echoed(between, data) == data, "its certificate counts"
            assert first.wait(60.0) != 0, "that of the first one does not any more"
            assert b"certificate" in b"".join(iter(first.stderr.readline, b""))  # type: ignore[union-attr]
            log_in_anew(daemons)
            wait_until(lambda: roots(daemons) == 1, what="the node forgets", timeout_s=60.0)
            assert echoed(between, data) == data
        with (
            forwarded(daemons, job_id, port, "--verbose") as (third, last),
            connected(last) as after,
        ):
            assert b"through the relay" in said(third)
            assert echoed(after, data) == data
