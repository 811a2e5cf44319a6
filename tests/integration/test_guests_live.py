"""Two real clusters of two organisations: a grant, a guest's job, the account, kills, the end.

The lender has one master that is killed and comes back, or two on one PostgreSQL of which the
second takes over.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from dlq_cli.exit_codes import FAILURE
from support.cli_run import Dlq, Said
from support.harness import Daemons
from support.pair_daemons import PairDaemons
from support.postgres_site import postgres_site
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "integration/test_guests.py::test_a_guest_runs_jobs_there_and_both_audits_say_so"
    ),
]


class Neighbours:
    """Clusters a and b, and the identity of a's user at b."""

    def __init__(self, root: Path, a: Daemons, b: Daemons) -> None:
        self.root, self.a, self.b = root, a, b
        self.guest_home = root / "guest"
        self.own = a.root / "home"

    def guest(self, *words: str) -> Said:
        with chdir("/tmp"):
            return Dlq(self.guest_home, self.a.environment() | {"DLQ_HOME": str(self.guest_home)})(
                *words
            )

    def said(self, *words: str) -> str:
        done = self.guest(*words)
        assert done.code == 0, done.err
        return done.out

    def lose_the_master(self) -> None:
        """kill -9 of the lender's master: it comes back, or its standby takes over."""
        if isinstance(self.b, PairDaemons):
            self.b.start_standby()
            self.b.kill("master")
            self.b.taken_over_s("master2")
        else:
            self.b.kill("master")
            self.b.start("master")
            self.b.wait_for("master")


@pytest.fixture(params=["alone", "pair"])
def two(request: pytest.FixtureRequest) -> Iterator[Neighbours]:
    root = Path(tempfile.mkdtemp(prefix="dlqguest", dir="/tmp"))
    try:
        with ExitStack() as stack:
            for name in ("a", "b"):
                (root / name).mkdir()
            a, b = Daemons(root / "a", ("n1",)), Daemons(root / "b", ("n1",))
            if request.param == "pair":
                site = stack.enter_context(postgres_site())
                b = PairDaemons(root / "b", site.primary, ("n1",))
            yield Neighbours(root, *[stack.enter_context(one.up()) for one in (a, b)])
    finally:
        shutil.rmtree(root)


def test_from_the_grant_to_its_end(two: Neighbours) -> None:
    ca, document = str(two.own / "ca.crt"), two.root / "grant"
    two.b.said("admin", "policy", "set", "dlq", "-y")
    document.write_text(
        two.b.said("admin", "grants", "give", "orga", "--ca", ca, "--accounts", "games,daemon",
                   "--gpus", "2")
    )  # fmt: skip
    two.a.said("admin", "grants", "take", str(document), "--as", "roof", "-y")
    done = two.guest("login", "--grant", "roof", "--from", str(two.own))
    assert done.code == 0, done.err
    assert "@orga (guest)" in done.out
    # The user's list has it like any other cluster.
    (two.own / "clusters.toml").write_text(f'[clusters.roof]\nhome = "{two.guest_home}"\n')
    words = ("submit", "--to", "roof", "--parsable", "--gpus", "1", "--", "sleep", "600")
    name = two.a.said(*words).strip()
    wait_until(lambda: "running" in two.a.said("status", name), what="it runs")
    assert name.partition(":")[2] in two.said("status")
    assert two.guest("nodes").code == FAILURE or "may not call" in two.guest("nodes").err

    two.lose_the_master()
    wait_until(lambda: "running" in two.a.said("status", name), what="it runs on")

    (two.root / "statement").write_text(two.b.said("admin", "grants", "statement", "orga"))
    two.a.said("admin", "grants", "take", str(two.root / "statement"), "-y")
    (account,) = json.loads(two.a.said("admin", "grants", "account", "--json"))["accounts"]
    assert account["owed_gpu_hours"] > 0.0
    assert account["net_gpu_hours"] == -account["owed_gpu_hours"]
    (lent,) = json.loads(two.b.said("admin", "grants", "account", "--json"))["accounts"]
    assert lent["lent_gpu_hours"] >= account["owed_gpu_hours"]

    (grant,) = json.loads(two.b.said("admin", "grants", "list", "--json"))["grants"]
    told = two.b.said("admin", "grants", "revoke", grant["serial"], "-y", "--reason", "over")
    assert "1 job cancelled" in told
    refused = two.guest("status")
    assert refused.code != 0
    assert "was revoked" in refused.err
    job = name.partition(":")[2]
    wait_until(lambda: "cancelled" in two.b.said("status", job), what="it has ended")
    # Each of two masters has the audit of the time in which it led.
    audits = sorted(two.b.root.glob("master*/audit.jsonl"))
    lines = "".join(path.read_text() for path in audits)
    assert "RevokeGrant" in two.b.said("admin", "audit", "--json")
    assert "EnterAsGuest" in lines
    assert f"grant-{grant['serial']}" in lines
