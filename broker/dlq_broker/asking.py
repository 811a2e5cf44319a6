"""Asks all clusters for an offer at the same time, within one bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

from dlq_broker.doors import ClusterDoor
from dlq_broker.offers import NoOffer, OfferAnswer

_NONE: Mapping[str, str] = {}
# The answer of a cluster that took the whole time is still on its way back.
GRACE_S = 0.5


def ask_all(
    doors: Sequence[ClusterDoor],
    spec: bytes,
    within_s: float,
    steady_s: Callable[[], float],
    waiting: Mapping[str, str] = _NONE,
) -> list[OfferAnswer]:
    """One answer for each cluster, in their order; one that has not answered by then is silent.

    A thread for each: a cluster that hangs keeps no other from its answer. Threads of silent ones
    are left alone; their answers are dropped. `steady_s`: a clock that is never set. `waiting`: the
    job that waits already, by its cluster.
    """
    answers: SimpleQueue[OfferAnswer] = SimpleQueue()
    until_s = steady_s() + within_s + GRACE_S

    def ask(door: ClusterDoor) -> None:
        answers.put(_answer(door, spec, within_s, waiting.get(door.name)))

    for door in doors:
        threading.Thread(target=ask, args=(door,), daemon=True, name=f"ask {door.name}").start()
    found: dict[str, OfferAnswer] = {}
    while len(found) < len(doors):
        try:
            answer = answers.get(timeout=max(0.0, until_s - steady_s()))
        except Empty:
            break
        found[answer.cluster] = answer
    why = f"no answer within {within_s:g} s"
    return [
        found.get(door.name) or NoOffer(door.name, why, "UNAVAILABLE", silent=True)
        for door in doors
    ]


def _answer(door: ClusterDoor, spec: bytes, within_s: float, job: str | None) -> OfferAnswer:
    """A fault in one door is one cluster less, and no end of the question."""
    try:
        return door.offer(spec, within_s) if job is None else door.offer_of(job, within_s)
    except Exception as error:  # noqa: BLE001 - the thread has nobody who would hear of it
        return NoOffer(door.name, f"{type(error).__name__}: {error}"[:200], "INTERNAL", silent=True)
