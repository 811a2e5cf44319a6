"""Asks all clusters for an offer at the same time, within one time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from dlq_broker.doors import ClusterDoor, JobWait
from dlq_broker.offers import NoOffer, OfferAnswer

_NONE: Mapping[str, str] = {}
_NO_JOBS: Mapping[str, Sequence[str]] = {}
# Of the bound, so much is for the waits of former jobs.
_WAITS_SHARE = 0.2
# The answer of a cluster that took the whole time is still on its way back.
GRACE_S = 0.5


class ClusterAnswers(NamedTuple):
    """`offers`: one for each cluster. `waits`: those of former jobs, by cluster and job number."""

    offers: list[OfferAnswer]
    waits: Mapping[str, Mapping[str, JobWait]]


def ask_all(
    doors: Sequence[ClusterDoor],
    spec: bytes,
    within_s: float,
    steady_s: Callable[[], float],
    waiting: Mapping[str, str] = _NONE,
    former: Mapping[str, Sequence[str]] = _NO_JOBS,
) -> ClusterAnswers:
    """One answer for each cluster, in their order; a cluster without an answer by then is silent.

    Each cluster has a thread, so that one that hangs delays no other. Threads of silent clusters
    are abandoned, and their answers dropped. `steady_s`: a monotonic clock. `waiting`: the job that
    waits already, by its cluster. `former`: jobs there whose waits are asked for too.
    """
    answers: SimpleQueue[tuple[OfferAnswer, Mapping[str, JobWait]]] = SimpleQueue()
    until_s = steady_s() + within_s + GRACE_S

    def ask(door: ClusterDoor) -> None:
        left_s, jobs = within_s, former.get(door.name, ())
        waits: Mapping[str, JobWait] = {}
        if jobs:
            begin_s = steady_s()
            with suppress(Exception):  # the thread has nobody who would hear of it
                waits = door.waits(jobs, within_s * _WAITS_SHARE)
            left_s -= min(steady_s() - begin_s, within_s * _WAITS_SHARE)
        answers.put((_answer(door, spec, left_s, waiting.get(door.name)), waits))

    for door in doors:
        threading.Thread(target=ask, args=(door,), daemon=True, name=f"ask {door.name}").start()
    found: dict[str, OfferAnswer] = {}
    waits: dict[str, Mapping[str, JobWait]] = {}
    while len(found) < len(doors):
        try:
            answer, known = answers.get(timeout=max(0.0, until_s - steady_s()))
        except Empty:
            break
        found[answer.cluster], waits[answer.cluster] = answer, known
    why = f"no answer within {within_s:g} s"
    offers = [
        found.get(door.name) or NoOffer(door.name, why, "UNAVAILABLE", silent=True)
        for door in doors
    ]
    return ClusterAnswers(offers, waits)


def _answer(door: ClusterDoor, spec: bytes, within_s: float, job: str | None) -> OfferAnswer:
    """The answer of one cluster. A fault of its door makes it silent, and ends nothing else."""
    try:
        return door.offer(spec, within_s) if job is None else door.offer_of(job, within_s)
    except Exception as error:  # noqa: BLE001 - the thread has nobody who would hear of it
        return NoOffer(door.name, f"{type(error).__name__}: {error}"[:200], "INTERNAL", silent=True)
