"""Every kill and every loss of a message: one job, or none and a word about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count, product
from pathlib import Path

import pytest

from dlq_broker.carrying import Carrier
from dlq_broker.doors import Accepted, Declined, Tried, Unheard, Withdrawn
from dlq_broker.handover import (
    KEY_GOOD_S,
    HandOver,
    HandOverState,
    NextAct,
    digest_of,
    given_up,
    leaving,
    proven,
    tried,
)
from dlq_broker.records import HandOverFiles, HandOverRecords
from dlq_common.errors import AlreadyExists, ConfigError, NotFound, TryAgain
from support.fake_clusters import (
    NOW_S,
    FakeCluster,
    Killed,
    MemoryRecords,
    MortalDoor,
    MortalRecords,
    an_offer,
)

SPEC = b"spec"
Clusters = Mapping[str, FakeCluster]


def a_hand(*order: str) -> HandOver:
    return HandOver(
        number="h1",
        made_s=NOW_S,
        name="train",
        digest=digest_of(SPEC),
        spec=SPEC,
        order=order or ("a", "b"),
        sites=("fake",) * len(order or "ab"),
        answers=(an_offer("a"),),
        reasons=(("a", "the only offer"),),
    )


def clusters(**lines: list[str]) -> dict[str, FakeCluster]:
    return {name: FakeCluster(name, line=[*lines.get(name, [])]) for name in ("a", "b")}


def a_process(files: HandOverRecords, sites: Clusters, dies_at: int = -1) -> Carrier:
    mortal = MortalRecords(files, dies_at)
    doors = {name: MortalDoor(cluster, mortal) for name, cluster in sites.items()}
    return Carrier(mortal, doors, lambda: NOW_S)


def patience(times: int) -> Callable[[], bool]:
    left = iter([True] * times)
    return lambda: next(left, False)


def all_jobs(sites: Clusters) -> list[str]:
    return [f"{site.name}:{job}" for site in sites.values() for job in site.jobs.values()]


def lived(files: HandOverRecords, sites: Clusters, dies_at: int) -> bool:
    """Begin and carry in a process that may be killed; whether it was not."""
    process = a_process(files, sites, dies_at)
    try:
        if files.read("h1") is None:
            process.begin(a_hand())
        process.go_on("h1", patience(2))
    except Killed:
        return False
    return True


LINES = [
    {"a": []},
    {"a": ["lost"]},
    {"a": ["late", ""]},
    {"a": ["away"]},
    {"a": ["lost", "lost", "away"]},
    {"a": ["late", "away", "lost"]},
]


@pytest.mark.parametrize("line", LINES, ids=str)
@pytest.mark.parametrize("refuses", ["", "full"])
def test_a_kill_at_any_step_makes_one_job_or_none(line: dict[str, list[str]], refuses: str) -> None:
    """Two kills, at any two steps; in the end nothing is open, and late messages arrive too."""
    for first in count():
        ended = False
        for second in count():
            files, sites = MemoryRecords(), clusters(**line)
            sites["a"].refuses = refuses
            ended = lived(files, sites, first)
            again = lived(files, sites, second)
            if files.read("h1") is None:
                files.write(a_hand())
            hand = a_process(files, sites).go_on("h1", patience(9))
            for site in sites.values():
                site.deliver()
            assert hand.state is HandOverState.PLACED
            assert all_jobs(sites) == [hand.global_name]
            if again:
                break
        if ended:
            return


def test_a_repeat_answers_with_the_first_job() -> None:
    files, sites = MemoryRecords(), clusters()
    process = a_process(files, sites)
    process.begin(a_hand())
    assert process.go_on("h1", patience(0)).global_name == "a:17"
    assert process.go_on("h1", patience(0)).global_name == "a:17"
    assert process.known("h1", digest_of(SPEC)) is not None
    with pytest.raises(AlreadyExists):
        process.known("h1", digest_of(b"another spec"))
    with pytest.raises(AlreadyExists):
        process.begin(a_hand())
    assert all_jobs(sites) == ["a:17"]


def test_a_cluster_that_is_silent_after_a_try_keeps_the_hand_over() -> None:
    files, sites = MemoryRecords(), clusters(a=["late"])
    process = a_process(files, sites)
    process.begin(a_hand())
    sites["a"].line = ["late", *["away"] * 9]
    hand = process.go_on("h1", patience(3))
    assert hand.in_doubt
    assert all_jobs(sites) == []
    sites["a"].line = []
    assert process.go_on("h1", patience(0)).global_name == "a:17"
    sites["a"].deliver()
    assert all_jobs(sites) == ["a:17"]


def test_a_refusal_after_a_try_in_doubt_is_proven_before_another_cluster_gets_the_job() -> None:
    files, sites = MemoryRecords(), clusters(a=["late"])
    process = a_process(files, sites)
    process.begin(a_hand())
    process.go_on("h1", patience(0))
    sites["a"].refuses = "full"
    assert process.go_on("h1", patience(0)).global_name == "b:17"
    sites["a"].refuses = ""
    sites["a"].deliver()
    assert all_jobs(sites) == ["b:17"]


def test_a_cluster_that_no_message_reached_is_left_at_once() -> None:
    files, sites = MemoryRecords(), clusters()
    sites["a"].away = True
    process = a_process(files, sites)
    process.begin(a_hand())
    hand = process.go_on("h1", patience(0))
    assert hand.global_name == "b:17"
    assert hand.story == ("a was not reached: away", "b has it as job 17")


def test_when_all_refuse_no_cluster_has_the_job_and_the_spec_is_gone(tmp_path: Path) -> None:
    files, sites = HandOverFiles(tmp_path), clusters()
    sites["a"].refuses = sites["b"].refuses = "full"
    process = a_process(files, sites)
    process.begin(a_hand())
    hand = process.go_on("h1", patience(0))
    assert (hand.state, hand.spec, hand.global_name) == (HandOverState.REFUSED, b"", "")
    assert b"c3BlYw" not in (tmp_path / "h1.json").read_bytes()


def test_giving_up_asks_the_cluster_that_may_have_the_job() -> None:
    for line, delivered in product((["late"], ["lost"]), (False, True)):
        files, sites = MemoryRecords(), clusters(a=[*line])
        process = a_process(files, sites)
        process.begin(a_hand())
        assert process.go_on("h1", patience(0)).in_doubt
        if delivered:
            sites["a"].deliver()
        hand = process.give_up("h1", patience(0))
        sites["a"].deliver()
        there = delivered or line == ["lost"]
        assert hand.state is (HandOverState.PLACED if there else HandOverState.GIVEN_UP)
        assert len(all_jobs(sites)) == there


def test_an_untried_hand_over_is_given_up_without_a_question() -> None:
    assert given_up(a_hand()).state is HandOverState.GIVEN_UP
    placed = tried(leaving(a_hand()), Accepted("17"))
    assert given_up(placed) == placed
    assert given_up(leaving(a_hand())).act is NextAct.END


def test_a_hand_over_whose_key_may_be_forgotten_is_sent_no_more() -> None:
    files, sites = MemoryRecords(), clusters()
    files.write(replace(leaving(a_hand()), made_s=NOW_S - KEY_GOOD_S - 1.0))
    hand = a_process(files, sites).go_on("h1", patience(3))
    assert hand.is_open
    assert all_jobs(sites) == []


def test_a_name_that_means_another_cluster_by_now_is_not_asked() -> None:
    files, sites = MemoryRecords(), clusters(a=["lost"])
    process = a_process(files, sites)
    process.begin(a_hand())
    assert process.go_on("h1", patience(0)).in_doubt
    sites["a"] = FakeCluster("a", site="another")
    hand = a_process(files, sites).go_on("h1", patience(9))
    assert hand.in_doubt
    assert all_jobs(sites) == []


def test_an_unknown_hand_over_is_not_gone_on_with() -> None:
    with pytest.raises(NotFound):
        a_process(MemoryRecords(), clusters()).go_on("h9", patience(0))


def test_a_record_survives_its_file_and_half_a_file_is_none(tmp_path: Path) -> None:
    files, hand = (
        HandOverFiles(tmp_path),
        replace(leaving(a_hand()), story=("a is slow",), unused=2),
    )
    files.write(hand)
    (tmp_path / "h1.next").write_text("{")
    (tmp_path / "h2.next").write_text("{")
    assert HandOverFiles(tmp_path).all() == [hand]
    assert (tmp_path / "h1.json").stat().st_mode & 0o077 == 0
    assert HandOverFiles(tmp_path / "none").all() == []


def test_a_damaged_record_is_named_and_never_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "h1.json").write_text('{"v": 1, "number"')
    with pytest.raises(ConfigError, match="is damaged"):
        HandOverFiles(tmp_path).read("h1")


def test_ended_records_go_after_a_week_and_open_ones_stay(tmp_path: Path) -> None:
    files = HandOverFiles(tmp_path)
    files.write(a_hand())
    files.write(replace(tried(leaving(a_hand()), Accepted("17")), number="h2"))
    files.forget_old(NOW_S + KEY_GOOD_S)
    assert [hand.number for hand in files.all()] == ["h1", "h2"]
    files.forget_old(NOW_S + 2 * KEY_GOOD_S)
    assert [hand.number for hand in files.all()] == ["h1"]


@pytest.mark.parametrize("answer", [Declined("no"), Unheard("no"), Unheard("no", left=False)])
def test_every_answer_keeps_the_cluster_or_leaves_it_without_a_doubt(answer: Tried) -> None:
    doubtful = leaving(leaving(a_hand()))
    after = tried(doubtful, answer)
    assert (after.place, after.is_open) == (0, True)
    sure = tried(leaving(a_hand()), answer)
    stays = isinstance(answer, Unheard) and answer.left
    assert (sure.place, sure.tries) == ((0, 1) if stays else (1, 0))


def test_a_proof_that_is_not_heard_proves_nothing() -> None:
    hand = replace(leaving(a_hand()), act=NextAct.PROVE)
    assert proven(hand, Unheard("no")).place == 0
    assert proven(hand, Withdrawn()).place == 1
    assert proven(hand, Accepted("17")).global_name == "a:17"


def test_locks_of_other_processes_are_respected(tmp_path: Path) -> None:
    import multiprocessing

    files = HandOverFiles(tmp_path)
    context = multiprocessing.get_context("fork")
    held, leave = context.Event(), context.Event()

    def hold() -> None:
        with HandOverFiles(tmp_path).held("h1"):
            held.set()
            leave.wait()

    other = context.Process(target=hold)
    other.start()
    held.wait()
    try:
        with pytest.raises(TryAgain), files.held("h1"):
            pass
    finally:
        leave.set()
        other.join()
