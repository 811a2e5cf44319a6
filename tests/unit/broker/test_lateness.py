"""Offers count as late as the jobs of their cluster have started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_broker.asking import ask_all
from dlq_broker.doors import JobWait, WaitState
from dlq_broker.handover import HandOver, HandOverState, digest_of
from dlq_broker.lateness import MOST_JOBS, StartLateness, lowered, measured, placed_at
from dlq_broker.measuring import measured_offers
from dlq_broker.offers import ClusterOffer, NoOffer, TimeSpan
from dlq_broker.records import HandOverFiles
from support.fake_clusters import NOW_S, FakeCluster, an_offer

HOUR_S = 3_600.0


def an_offer_in(wait_s: float, cluster: str = "a") -> ClusterOffer:
    at_s = NOW_S + wait_s
    return an_offer(cluster, HOUR_S + wait_s, start=TimeSpan(at_s, at_s, at_s + 60.0))


def placed(number: int, told_s: float, wait: JobWait | None = None, **more: object) -> HandOver:
    fields: dict[str, object] = {
        "number": f"h{number}", "made_s": NOW_S, "name": "train", "digest": digest_of(b""),
        "spec": b"", "order": ("a",), "sites": ("fake",), "answers": (an_offer_in(told_s),),
        "state": HandOverState.PLACED, "job": str(number), "wait": wait,
    }  # fmt: skip
    return HandOver(**fields | more)  # type: ignore[arg-type]  # a builder


def started(waited_s: float) -> JobWait:
    return JobWait(WaitState.STARTED, waited_s)


def late_of(*hands: HandOver, now_s: float = NOW_S, **waits: JobWait) -> StartLateness:
    return measured(hands, {name.removeprefix("job"): wait for name, wait in waits.items()}, now_s)


def test_a_cluster_that_keeps_its_word_is_not_lowered() -> None:
    late = late_of(*(placed(n, HOUR_S, started(HOUR_S)) for n in range(9)))
    assert late == StartLateness(1.0, 9)
    offer = an_offer_in(HOUR_S)
    assert lowered(offer, late, NOW_S) is offer


def test_being_early_earns_nothing() -> None:
    assert late_of(*(placed(n, HOUR_S, started(0.0)) for n in range(9))).factor == 1.0


def test_late_starts_make_the_next_offer_later_by_the_same_measure() -> None:
    late = late_of(*(placed(n, 0.0, started(HOUR_S)) for n in range(MOST_JOBS)))
    assert 30.0 < late.factor < 61.0  # 61 times a minute, with one job in its favour
    told = an_offer_in(0.0)
    offer = lowered(told, late, NOW_S)
    assert isinstance(offer, ClusterOffer)
    assert offer.late_s == pytest.approx(60.0 * (late.factor - 1.0))
    assert offer.likely_start_s == told.likely_start_s + offer.late_s
    assert offer.likely_end_s == told.likely_end_s + offer.late_s
    assert (offer.start, offer.cost, offer.late_jobs) == (told.start, told.cost, MOST_JOBS)


def test_one_late_job_counts_less_than_many() -> None:
    one = late_of(placed(1, HOUR_S, started(8 * HOUR_S)))
    many = late_of(*(placed(n, HOUR_S, started(8 * HOUR_S)) for n in range(9)))
    assert 1.0 < one.factor < 3.0 < many.factor < 8.0


def test_a_waiting_job_counts_once_it_has_waited_longer_than_foretold() -> None:
    hand, waits = placed(1, HOUR_S), JobWait(WaitState.WAITS)
    assert late_of(hand, now_s=NOW_S + HOUR_S / 2, job1=waits) == StartLateness()
    assert late_of(hand, now_s=NOW_S + 9 * HOUR_S, job1=waits).factor > 2.0
    assert late_of(hand, now_s=NOW_S + 9 * HOUR_S) == StartLateness()  # nothing is known of it


def test_jobs_that_left_and_offers_without_a_start_say_nothing() -> None:
    assert late_of(placed(1, HOUR_S, JobWait(WaitState.LEFT))) == StartLateness()
    blind = placed(2, 0.0, started(9 * HOUR_S), answers=(ClusterOffer("a", unknown="off"),))
    assert late_of(blind) == StartLateness()
    assert lowered(ClusterOffer("a"), StartLateness(5.0, 3), NOW_S) == ClusterOffer("a")
    refusal = NoOffer("a", "full")
    assert lowered(refusal, StartLateness(5.0, 3), NOW_S) is refusal


def test_only_the_newest_jobs_of_the_same_site_count() -> None:
    old = [placed(n, 0.0, started(HOUR_S)) for n in range(50)]
    new = [placed(n, 0.0, started(0.0)) for n in range(50, 50 + MOST_JOBS)]
    assert measured(placed_at([*old, *new], "fake"), {}, NOW_S).factor == 1.0
    elsewhere = [replace(hand, sites=("another",)) for hand in old]
    assert placed_at(elsewhere, "fake") == []
    still_open = replace(old[0], state=HandOverState.OPEN)
    assert placed_at([still_open], "fake") == []


# --- with records and doors -----------------------------------------------------------------------


def ask(files: HandOverFiles, sites: Sequence[FakeCluster], now_s: float) -> list[ClusterOffer]:
    def asked(former: Mapping[str, Sequence[str]]) -> object:
        return ask_all(sites, b"spec", 5.0, lambda: 0.0, former=former)

    answers = measured_offers(files, sites, asked, now_s)  # type: ignore[arg-type]
    return [answer for answer in answers if isinstance(answer, ClusterOffer)]


def test_a_wait_that_is_over_stays_in_the_record_and_is_asked_for_once(tmp_path: Path) -> None:
    files, site = HandOverFiles(tmp_path), FakeCluster("a")
    for number in range(3):
        files.write(placed(number, 0.0))
    left, waits = JobWait(WaitState.LEFT), JobWait(WaitState.WAITS)
    site.starts = {"0": started(HOUR_S), "1": left, "2": waits}
    (offer,) = ask(files, [site], NOW_S + 2 * HOUR_S)
    assert (offer.late_jobs, offer.late_s > 60.0) == (2, True)
    assert [hand.wait for hand in files.all()] == [started(HOUR_S), left, None]
    site.starts = {"2": started(HOUR_S)}  # of the others it tells nothing any more
    (again,) = ask(files, [site], NOW_S + 2 * HOUR_S)
    assert again.late_jobs == 2


def test_a_liar_loses_the_next_jobs_to_its_neighbour(tmp_path: Path) -> None:
    """It says "at once" and starts jobs an hour later; the neighbour says 20 min and keeps it."""
    files, now_s = HandOverFiles(tmp_path), NOW_S
    liar, honest = FakeCluster("liar", site="one"), FakeCluster("honest", site="other")
    tells, starts = {"liar": 0.0, "honest": 1_200.0}, {"liar": HOUR_S, "honest": 1_200.0}
    got: list[str] = []
    for number in range(12):
        for site in (liar, honest):
            site.told = lambda name: an_offer_in(now_s - NOW_S + tells[name], name)  # noqa: B023
        offers = ask(files, [liar, honest], now_s)
        best = min(offers, key=lambda offer: offer.likely_end_s).cluster
        got.append(best)
        at = liar if best == "liar" else honest
        at.starts[str(number)] = started(starts[best])
        files.write(
            placed(
                number, 0.0, made_s=now_s, order=(best,), sites=(at.site,), answers=tuple(offers)
            )
        )
        now_s += 2 * HOUR_S
    assert got[0] == "liar"
    assert set(got[8:]) == {"honest"}


def test_a_cluster_that_hangs_at_former_jobs_still_answers_with_an_offer(tmp_path: Path) -> None:
    class Broken(FakeCluster):
        def waits(self, jobs: Sequence[str], within_s: float) -> Mapping[str, JobWait]:
            raise RuntimeError("a fault of this door")

    files = HandOverFiles(tmp_path)
    files.write(placed(1, 0.0))
    (offer,) = ask(files, [Broken("a")], NOW_S)
    assert (offer.cluster, offer.late_s) == ("a", 0.0)
    (hand,) = files.all()
    assert hand.wait is None


def test_a_late_offer_keeps_no_verdict_on_a_deadline_that_it_would_miss() -> None:
    """Else a cluster whose starts are late would win each job with a deadline."""
    late = late_of(*(placed(n, 0.0, started(HOUR_S)) for n in range(MOST_JOBS)))
    told = an_offer_in(0.0)
    soon, far = told.likely_end_s + 60.0, told.likely_end_s + 99 * HOUR_S
    for due_s, promise in ((soon, ""), (far, "guaranteed")):
        offer = lowered(told._replace(promise="guaranteed", promised_s=due_s), late, NOW_S)
        assert isinstance(offer, ClusterOffer)
        assert offer.promise == promise
