"""Clusters in this process that obey the port of `dlq_broker.doors`, with lines that lose messages.

Each keeps what a master keeps: one job for one key, and keys that are used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dlq.v1 import job_pb2
from dlq_broker.doors import (
    Accepted,
    Declined,
    JobWait,
    Left,
    Proof,
    SavedThere,
    StillLeaves,
    Tried,
    Unheard,
    Withdrawn,
)
from dlq_broker.handover import HandOver
from dlq_broker.offers import ClusterOffer, NoOffer, OfferAnswer, TimeSpan
from dlq_broker.records import HandOverRecords

NOW_S = 1_200_000.0  # a whole minute
# The fields by which a job goes on elsewhere from its checkpoint.
SAVED = job_pb2.JobSpec(checkpoint=job_pb2.CheckpointSpec(resume_from="/saved")).SerializeToString()


def an_offer(cluster: str, ends_after_s: float = 3_600.0, **more: object) -> ClusterOffer:
    """It starts at once, and ends so long after now."""
    end_s = NOW_S + ends_after_s
    fields: dict[str, object] = {
        "start": TimeSpan(NOW_S, NOW_S, NOW_S + 60.0),
        "end": TimeSpan(end_s - 60.0, end_s, end_s + 600.0),
        "basis": "estimate",
        "gpus": 8,
    }
    return ClusterOffer(cluster, **fields | more)  # type: ignore[arg-type]  # a builder


@dataclass
class FakeCluster:
    """One of them. The next answers of its line are in `line`: "lost" (it acts, and its answer is
    lost), "late" (it acts after the next call), "away" (nothing arrives). Then all goes well.
    """

    name: str
    refuses: str = ""  # why it takes no job
    away: bool = False
    line: list[str] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)  # key -> number
    asked: dict[str, bytes] = field(default_factory=dict)  # key -> spec
    used_up: set[str] = field(default_factory=set)
    specs: list[bytes] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    site: str = "fake"
    versions: dict[str, int] = field(default_factory=dict)  # of jobs that wait, by number
    starts: dict[str, JobWait] = field(default_factory=dict)  # what became of waits, by number
    told: Callable[[str], ClusterOffer] | None = None  # its offers; None: it starts at once
    takes: dict[str, str] = field(default_factory=dict)  # key -> number; of pauses too
    running: set[str] = field(default_factory=set)  # numbers of jobs that run
    saves_for: int = 1  # so many looks at a paused job find that it still saves
    paused: set[str] = field(default_factory=set)

    def offer(self, spec: bytes, within_s: float) -> OfferAnswer:
        if self.away:
            return NoOffer(self.name, "away", "UNAVAILABLE", silent=True)
        if self.refuses:
            return NoOffer(self.name, self.refuses, "UNSATISFIABLE")
        return an_offer(self.name) if self.told is None else self.told(self.name)

    def offer_of(self, job: str, within_s: float, *, looks: bool = True) -> OfferAnswer:
        return self.offer(b"", within_s)

    def waits(self, jobs: Sequence[str], within_s: float) -> Mapping[str, JobWait]:
        if self.away:
            return {}
        return {job: self.starts[job] for job in jobs if job in self.starts}

    def take(self, job: str, version: int, key: str) -> Tried:
        return self._try(lambda: self._take(job, version, key))

    def _take(self, job: str, version: int, key: str) -> Tried:
        if key in self.takes:
            return Accepted(self.takes[key])
        if key in self.used_up:
            return Declined("withdrawn", "ALREADY_EXISTS")
        if self.versions.get(job) != version:
            return Declined("it has changed", "CONFLICT")
        del self.versions[job]
        self.paused.discard(job)
        self.takes[key] = job
        return Accepted(job)

    def pause(self, job: str, key: str) -> Tried:
        return self._try(lambda: self._pause(job, key))

    def _pause(self, job: str, key: str) -> Tried:
        if key in self.takes:
            return Accepted(self.takes[key])
        if key in self.used_up:
            return Declined("withdrawn", "ALREADY_EXISTS")
        if job not in self.versions:
            return Declined("it has ended", "ILLEGAL_TRANSITION")
        self.paused.add(job)
        self.takes[key] = job
        return Accepted(job)

    def left(self, job: str) -> Left:
        fate = self._fate()
        if fate:
            return Unheard(fate)
        if job not in self.paused:
            return Declined("it is paused no more")
        if job in self.running and self.saves_for > 0:
            self.saves_for -= 1
            return StillLeaves()
        if job in self.running:
            self.running.discard(job)
            self.versions[job] += 1
        return SavedThere(self.versions[job], SAVED)

    def resume(self, job: str, key: str) -> Tried:
        return self._try(lambda: self._resume(job, key))

    def _resume(self, job: str, key: str) -> Tried:
        if key not in self.takes and job not in self.paused:
            return Declined("it is not paused", "ILLEGAL_TRANSITION")
        if key not in self.takes:
            self.takes[key] = job
            self.paused.discard(job)
        return Accepted(job)

    def submit(self, spec: bytes, key: str) -> Tried:
        return self._try(lambda: self._submit(spec, key))

    def _try(self, act: Callable[[], Tried]) -> Tried:
        fate = self._fate()
        if fate == "away":
            return Unheard("away", left=False)
        if fate == "late":
            self.late.append(act)
            return Unheard("no answer")
        answer = act()
        return Unheard("no answer") if fate == "lost" else answer

    def withdraw(self, key: str) -> Proof:
        fate = self._fate()
        if fate in ("away", "late"):
            return Unheard("away")
        done = self.jobs | self.takes
        if key not in done:
            self.used_up.add(key)
        answer: Proof = Accepted(done[key]) if key in done else Withdrawn()
        return Unheard("no answer") if fate == "lost" else answer

    def deliver(self) -> None:
        """Messages that were late arrive now."""
        while self.late:
            self.late.pop(0)()

    def _fate(self) -> str:
        return "away" if self.away else self.line.pop(0) if self.line else ""

    def _submit(self, spec: bytes, key: str) -> Tried:
        if self.asked.get(key, spec) != spec:
            return Declined("used for another request", "ALREADY_EXISTS")
        if key in self.jobs:
            return Accepted(self.jobs[key])
        if key in self.used_up:
            return Declined("withdrawn", "ALREADY_EXISTS")
        if self.refuses:
            return Declined(self.refuses, "QUOTA_EXCEEDED")
        self.asked[key] = spec
        self.jobs[key] = str(17 + len(self.jobs))
        self.specs.append(spec)
        return Accepted(self.jobs[key])


class MemoryRecords:
    """Records that survive the process of a test, without a disk."""

    def __init__(self) -> None:
        self._hands: dict[str, HandOver] = {}

    def read(self, number: str) -> HandOver | None:
        return self._hands.get(number)

    def write(self, hand: HandOver) -> None:
        self._hands[hand.number] = hand

    @contextmanager
    def held(self, number: str) -> Iterator[None]:
        yield


class Killed(BaseException):
    """kill -9."""


class MortalRecords:
    """Records and lines of a process that is killed at its n-th effect: before it, or after it."""

    def __init__(self, files: HandOverRecords, dies_at: int = -1) -> None:
        self.files = files
        self._left = dies_at

    def read(self, number: str) -> HandOver | None:
        return self.files.read(number)

    def write(self, hand: HandOver) -> None:
        self.effect(lambda: self.files.write(hand))

    @contextmanager
    def held(self, number: str) -> Iterator[None]:
        with self.files.held(number):
            yield

    def effect(self, act: Callable[[], object]) -> object:
        """It may end before the act, and after it."""
        self._live()
        found = act()
        self._live()
        return found

    def _live(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1


class MortalDoor:
    """A cluster at the end of such a line."""

    def __init__(self, cluster: FakeCluster, process: MortalRecords) -> None:
        self.name, self.site = cluster.name, cluster.site
        self._cluster, self._process = cluster, process

    def offer(self, spec: bytes, within_s: float) -> OfferAnswer:
        return self._cluster.offer(spec, within_s)

    def submit(self, spec: bytes, key: str) -> Tried:
        return self._process.effect(lambda: self._cluster.submit(spec, key))  # type: ignore[return-value]

    def offer_of(self, job: str, within_s: float, *, looks: bool = True) -> OfferAnswer:
        return self._cluster.offer_of(job, within_s, looks=looks)

    def waits(self, jobs: Sequence[str], within_s: float) -> Mapping[str, JobWait]:
        return self._cluster.waits(jobs, within_s)

    def take(self, job: str, version: int, key: str) -> Tried:
        return self._process.effect(lambda: self._cluster.take(job, version, key))  # type: ignore[return-value]

    def pause(self, job: str, key: str) -> Tried:
        return self._process.effect(lambda: self._cluster.pause(job, key))  # type: ignore[return-value]

    def left(self, job: str) -> Left:
        return self._process.effect(lambda: self._cluster.left(job))  # type: ignore[return-value]

    def resume(self, job: str, key: str) -> Tried:
        return self._process.effect(lambda: self._cluster.resume(job, key))  # type: ignore[return-value]

    def withdraw(self, key: str) -> Proof:
        return self._process.effect(lambda: self._cluster.withdraw(key))  # type: ignore[return-value]
