"""The thread that keeps the lease, beside a simulated row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.fence import LeaderFence
from dlq_master.leader import keeper as keeper_module
from dlq_master.leader.keeper import SEEN, LeaseKeeper, read_seen
from dlq_master.leader.lease import LeaderLease, LeaseTerms, Standing
from dlq_master.leader.row import HeldLease, RowUnknown
from dlq_master.store.port import DatabaseDamaged
from support.simulated_lease import LeaseServer, SimulatedRow
from support.waiting import wait_until

TERMS = LeaseTerms(ttl_s=60.0, renew_s=0.01, poll_s=0.01)


@dataclass
class SimulatedSession(SimulatedRow):
    """A session that ends when the test says so."""

    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> bool:
        return not self.ended.wait(seconds)

    def abandon(self) -> None:
        self.ended.set()

    def close(self) -> None:
        self.end()


class Kept:
    """Keepers of one row."""

    def __init__(self, root: Path) -> None:
        self.root, self.server = root, LeaseServer()
        self.keepers: list[LeaseKeeper] = []

    def keeper(self, name: str) -> LeaseKeeper:
        """Another master, started."""
        state_dir = self.root / name
        state_dir.mkdir(exist_ok=True)
        lease = LeaderLease(name, TERMS)
        row = SimulatedSession(self.server)
        made = LeaseKeeper(lease, row, f"{name}:1", SteadyClock(), state_dir)
        self.keepers.append(made)
        made.start(lambda: None)
        return made


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    for keeper in made.keepers:
        keeper.close()


def test_the_first_leads_and_the_second_follows_when_it_lets_go(kept: Kept) -> None:
    one = kept.keeper("one")
    wait_until(one.may_speak, what="one leads")
    two = kept.keeper("two")
    wait_until(lambda: two.lease.leader == "one:1", what="two knows one")
    one.release()
    assert one.lease.standing is Standing.OVER
    assert not one.may_speak()
    wait_until(two.may_speak, what="two leads")
    assert two.fence == LeaderFence("71", 1, 2)


def test_what_was_seen_outlives_the_process(kept: Kept, tmp_path: Path) -> None:
    one = kept.keeper("one")
    seen = LeaderFence("71", 1, 1)
    wait_until(lambda: read_seen(tmp_path / "one" / SEEN) == seen, what="it is on disk")
    one.close()
    kept.server = LeaseServer(system="72")
    again = kept.keeper("one")
    assert again.lease.known == seen
    wait_until(lambda: "the system 72 is not 71" in again.lease.why, what="it is refused")
    assert not again.may_speak()


class SilentSession(SimulatedSession):
    """The first question gets no answer until it is abandoned."""

    asked = False

    def read(self) -> HeldLease:
        if not self.asked:
            self.asked = True
            self.ended.wait()
            raise RowUnknown("abandoned")
        return super().read()


def test_a_question_without_an_answer_ends_although_nobody_else_looks(tmp_path: Path) -> None:
    """The loop may stand still over a line to the same silent server."""
    row = SilentSession(LeaseServer())
    lease = LeaderLease("one", LeaseTerms(ttl_s=0.2, renew_s=0.01, poll_s=0.01))
    keeper = LeaseKeeper(lease, row, "one:1", SteadyClock(), tmp_path)
    row.server.synchronous = False  # it reads, and never leads
    keeper.start(lambda: None)
    wait_until(lambda: "no second server" in lease.why, what="it asks again")
    keeper.close()


def test_a_master_that_has_seen_nothing_begins_with_nothing(tmp_path: Path) -> None:
    assert read_seen(tmp_path / SEEN) == LeaderFence()


def test_a_standby_remembers_the_turns_it_has_seen_over_its_restart(kept: Kept) -> None:
    leads = kept.keeper("one")
    wait_until(leads.may_speak, what="one leads")
    kept.server.row.turn = 815
    standby = kept.keeper("two")
    wait_until(lambda: standby.turns.of("71") == 815, what="it has read the turn")
    standby.close()
    leads.release()
    kept.server.row.turn = 812
    again = kept.keeper("two")
    wait_until(lambda: "turn 815 was seen" in again.lease.why, what="it refuses the database")
    assert again.lease.standing is Standing.STANDBY
    again.turns.note(816, "71")  # as a leader does
    kept.server.row.turn = 816
    wait_until(again.may_speak, what="it leads where nothing is missing")


@pytest.mark.parametrize(
    "told",
    ["", "{", "[]", '{"epochs": 7}', '{"system": "71", "timeline": 1, "epoch": "7"}'],
)
def test_a_damaged_memory_of_the_leader_is_refused_by_name(tmp_path: Path, told: str) -> None:
    (tmp_path / SEEN).write_text(told)
    with pytest.raises(DatabaseDamaged, match=f"{SEEN} is damaged"):
        read_seen(tmp_path / SEEN)


class FaultySession(SimulatedSession):
    """Its answers are what nobody expects."""

    def read(self) -> HeldLease:
        raise ValueError("no row looks like this")


@pytest.mark.parametrize("thread", ["lease", "lease-watch"])
def test_the_process_ends_when_a_thread_of_the_lease_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    """A standby without the thread would look sound, and never lead."""
    ended: list[int] = []
    monkeypatch.setattr(keeper_module, "_leave", ended.append)
    row = (FaultySession if thread == "lease" else SimulatedSession)(LeaseServer())
    keeper = LeaseKeeper(LeaderLease("one", TERMS), row, "one:1", SteadyClock(), tmp_path)
    if thread == "lease-watch":
        monkeypatch.setattr(keeper, "watched", _fails)
    keeper.start(lambda: None)
    wait_until(lambda: ended == [keeper_module.EXIT_CODE], what="it ends")
    keeper.close()


def _fails() -> None:
    raise OSError("the line of another thread")
