"""Who waits for which pull: bounds, fairness, sharing, and an end with the last who waits. No
podman.
"""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.runtimes.podman.client import PodmanClient, PodmanConfig
from dlq_nodeagent.runtimes.podman.pull import NotWanted, PullEnding, Puller, Say
from dlq_nodeagent.runtimes.podman.pulls import Pulls, PullWish
from support.waiting import wait_until


@dataclass
class Registry:
    """Every pull hangs until it is let go or ended."""

    running: dict[PullWish, threading.Event] = field(default_factory=dict)
    pulled: list[PullWish] = field(default_factory=list)
    ended: list[PullWish] = field(default_factory=list)

    def fetch(self, wish: PullWish, say: Say, ending: PullEnding) -> None:
        say(f"pulling {wish.image}")
        self.pulled.append(wish)
        go = self.running[wish] = threading.Event()
        while not go.wait(0.001):
            if ending.over:
                self.ended.append(wish)
                del self.running[wish]
                raise NotWanted("ended")
        del self.running[wish]
        if wish.secret == "wrong":
            raise LaunchRefused("may not be pulled")

    def go(self, wish: PullWish) -> None:
        wait_until(lambda: wish in self.running, what=f"the pull of {wish}")
        self.running[wish].set()


@dataclass
class Bench:
    registry: Registry
    pulls: Pulls
    answers: dict[RankKey, Exception | None] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def want(self, number: int, wish: PullWish) -> RankKey:
        key = RankKey(str(number), 1, 0)
        self.pulls.want(
            key, wish, self.said.append, lambda error: self.answers.__setitem__(key, error)
        )
        return key

    def answer(self, key: RankKey) -> Exception | None:
        wait_until(lambda: key in self.answers, what=f"the answer to {key}")
        return self.answers[key]


@pytest.fixture
def bench() -> Iterator[Bench]:
    registry = Registry()
    pulls = Pulls(fetch=registry.fetch, most=4, most_of_user=2)
    yield Bench(registry, pulls)
    pulls.close()
    wait_until(lambda: not registry.running, what="the end of all pulls")


def test_one_user_cannot_have_all_pulls_and_nobody_more_than_there_are(bench: Bench) -> None:
    for number in range(36):
        bench.want(number, PullWish(f"hangs.example/{number}:1", "mallory"))
    theirs = bench.want(100, PullWish("reg.example/a:1", "alice"))
    bench.registry.go(PullWish("reg.example/a:1", "alice"))
    assert bench.answer(theirs) is None
    for number in range(200, 203):
        bench.want(number, PullWish(f"slow.example/{number}:1", "bob"))
    wait_until(lambda: len(bench.registry.running) == 4, what="four pulls")
    users = sorted(wish.user for wish in bench.registry.pulled)
    assert users == ["alice", "bob", "bob", "mallory", "mallory"]


def test_ranks_of_one_user_that_want_one_image_share_a_pull_and_hear_of_it(bench: Bench) -> None:
    wish = PullWish("reg.example/a:1", "alice")
    keys = [bench.want(number, wish) for number in range(5)]
    bench.registry.go(wish)
    assert [bench.answer(key) for key in keys] == [None] * 5
    assert bench.registry.pulled == [wish]
    assert "pulling reg.example/a:1" in bench.said


def test_another_user_shows_their_own_credential_after_the_first_has_the_image(
    bench: Bench,
) -> None:
    first, second = (
        PullWish("r.example/a:1", "alice", "right"),
        PullWish("r.example/a:1", "bob", "wrong"),
    )
    bench.want(1, first)
    denied = bench.want(2, second)
    wait_until(lambda: first in bench.registry.running, what="the first pull")
    assert bench.registry.pulled == [first]
    bench.registry.go(first)
    bench.registry.go(second)
    assert str(bench.answer(denied)) == "may not be pulled"


def test_a_pull_ends_with_the_last_rank_that_waits_for_it_and_makes_room(bench: Bench) -> None:
    wishes = [PullWish(f"hangs.example/{number}:1", "mallory") for number in range(3)]
    gone = [bench.want(number, wish) for number, wish in enumerate(wishes)]
    other = bench.want(9, wishes[0])
    wait_until(lambda: len(bench.registry.running) == 2, what="two pulls")
    bench.pulls.unwant(gone[0])
    assert isinstance(bench.answers[gone[0]], NotWanted)
    assert bench.registry.ended == []
    bench.pulls.unwant(other)
    wait_until(lambda: wishes[0] in bench.registry.ended, what="the end of the pull")
    wait_until(lambda: wishes[2] in bench.registry.running, what="the next pull")
    bench.pulls.unwant(gone[2])
    bench.pulls.unwant(gone[1])
    wait_until(lambda: not bench.registry.running, what="the end of all")


def test_what_waits_and_is_not_wanted_any_more_is_never_begun(bench: Bench) -> None:
    wishes = [PullWish(f"hangs.example/{number}:1", "mallory") for number in range(3)]
    keys = [bench.want(number, wish) for number, wish in enumerate(wishes)]
    bench.pulls.unwant(keys[2])
    bench.pulls.unwant(keys[0])
    bench.pulls.unwant(keys[1])
    wait_until(lambda: not bench.registry.running, what="the end of all")
    assert wishes[2] not in bench.registry.pulled


def test_an_agent_that_stops_ends_its_pulls_and_no_rank_has_failed_by_that(bench: Bench) -> None:
    wish = PullWish("hangs.example/a:1", "alice")
    bench.want(1, wish)
    wait_until(lambda: wish in bench.registry.running, what="the pull")
    bench.pulls.close()
    wait_until(lambda: bench.registry.ended == [wish], what="its end")
    assert bench.answers == {}


def test_a_rank_that_comes_while_a_pull_is_being_ended_gets_one_of_its_own(bench: Bench) -> None:
    wish = PullWish("hangs.example/a:1", "alice")
    first = bench.want(1, wish)
    bench.pulls.unwant(first)
    second = bench.want(2, wish)
    wait_until(lambda: bench.registry.ended == [wish], what="the end of the first")
    bench.registry.go(wish)
    assert bench.answer(second) is None


@contextmanager
def a_thousand_files_open() -> Iterator[None]:
    """As in the agent of a node with many jobs: the next descriptor is 1,024 or more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    filled = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while filled[-1] < 1024:
            filled.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in filled:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_pull_is_followed_where_a_thousand_files_are_open(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text(
        f"#!/bin/sh\ncase $1 in info) echo {tmp_path};; pull) echo Copying blob abc done;; esac\n"
    )
    program.chmod(0o755)
    puller = Puller(
        client=PodmanClient(program=str(program)),
        rules=PodmanConfig(spare=Bytes(0), pull_tries=1),
        clock=SteadyClock(),
        group="agent",
    )
    said = list[str]()
    with a_thousand_files_open():
        puller.pull("reg.example/a:1", None, said.append, PullEnding())
    assert said[-1].startswith("pulled reg.example/a:1")
