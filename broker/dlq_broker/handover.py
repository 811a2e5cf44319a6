"""The steps of a hand-over of one job to one cluster of an order, or to none. Pure.

The next cluster gets the job only once the present one has proven that it has no job of this
hand-over, and will have none. So at every instant at most one cluster can have the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, assert_never

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
from dlq_broker.offers import OfferAnswer

# Masters keep keys for seven days. Afterwards a repeat would be a new job.
KEY_GOOD_S = 6 * 86_400.0


class HandOverState(StrEnum):
    """OPEN until it is certain where the job is."""

    OPEN = "open"
    PLACED = "placed"  # a cluster has the job
    REFUSED = "refused"  # no cluster has it, a new job: all that offered refused it, or are away
    GIVEN_UP = "given_up"  # no cluster has it: its user has given it up
    STAYED = "stayed"  # it was to move, and the cluster that has it kept it


class NextAct(StrEnum):
    """The next question to the present cluster."""

    PAUSE = "pause"  # let the running job save and leave, before it moves; asked of its cluster
    AWAIT = "await"  # whether it has left; likewise
    RESUME = "resume"  # let it go on there, since it does not move; likewise
    TAKE = "take"  # end the waiting job, which is to move; asked of the cluster that has it
    KEEP = "keep"  # that it has not ended it, and will not; likewise
    SUBMIT = "submit"
    PROVE = "prove"  # that it has no job, before the next cluster gets it
    END = "end"  # likewise, before it is given up


class BeforeMove(StrEnum):
    """The state of a job that is to move, at its own cluster."""

    WAITS = "waits"
    RUNS = "runs"  # it is paused first
    PAUSED = "paused"  # by this hand-over


class MovingJob(NamedTuple):
    """A job at a cluster from which it is to move. `version`: it has not changed since."""

    cluster: str
    site: str
    job: str
    version: int
    before: BeforeMove = BeforeMove.WAITS

    @property
    def global_name(self) -> str:
        return f"{self.cluster}:{self.job}"


_AT_ITS_OWN = frozenset({NextAct.PAUSE, NextAct.AWAIT, NextAct.RESUME, NextAct.TAKE, NextAct.KEEP})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A hand-over of one job. Its `number` is part of its keys, one for each cluster."""

    number: str
    made_s: float  # UTC
    name: str  # of the job, for people
    digest: str  # of its spec
    spec: bytes  # a serialized dlq.v1.JobSpec; empty once it has ended
    order: tuple[str, ...]  # clusters, the best offer first
    sites: tuple[str, ...]  # of these clusters: a key is good at one site alone
    answers: tuple[OfferAnswer, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()  # for the place of each cluster
    place: int = 0  # of the present cluster in the order
    tries: int = 0  # submissions to it that may have left
    act: NextAct = NextAct.SUBMIT
    state: HandOverState = HandOverState.OPEN
    job: str = ""  # its number at the present cluster
    moving: MovingJob | None = None  # None: a new job
    story: tuple[str, ...] = ()  # what clusters have answered, for people
    wait: JobWait | None = None  # of its job for a start; None: it may wait still
    wanted: bool = True  # False: a job that was to move goes on where it is
    unused: int = 0  # keys of which its own cluster has proven that no job came, nor will come

    @property
    def cluster(self) -> str:
        """The present cluster: it has the job, or may have it."""
        return self.order[self.place] if self._left is None else self._left.cluster

    @property
    def site(self) -> str:
        """The present cluster itself, whatever its name in the list is now."""
        return self.sites[self.place] if self._left is None else self._left.site

    @property
    def _left(self) -> MovingJob | None:
        """The job that is to move, until its cluster has ended it."""
        return self.moving if self.act in _AT_ITS_OWN else None

    @property
    def key(self) -> str:
        """The idempotency key of the request to the present cluster. No name has a colon."""
        if self._left is None:
            again = f":again{self.unused}" if self.unused else f".{self.cluster}"
            return f"{self.number}{again}"
        if self.act is NextAct.RESUME:
            return f"{self.number}:resume"
        match self._left.before:
            case BeforeMove.WAITS:
                return f"{self.number}:take"
            case BeforeMove.RUNS:
                return f"{self.number}:pause"
            case BeforeMove.PAUSED:  # a paused job that has changed is taken under another key
                return f"{self.number}:take{self._left.version}"
            case _:
                assert_never(self._left.before)

    @property
    def is_open(self) -> bool:
        return self.state is HandOverState.OPEN

    @property
    def in_doubt(self) -> bool:
        """Whether the present cluster may have the job."""
        return self.is_open and self.tries > 0

    @property
    def global_name(self) -> str:
        """A name such as `a:17`; empty while no cluster is known to have the job."""
        return f"{self.cluster}:{self.job}" if self.job else ""

    def is_too_old(self, now_s: float) -> bool:
        """Whether its key may be forgotten by now, so that a repeat could be a second job."""
        return self.in_doubt and now_s - self.made_s > KEY_GOOD_S


def digest_of(spec: bytes) -> str:
    """A digest, equal for equal specs."""
    return hashlib.sha256(spec).hexdigest()[:32]


def leaving(hand: HandOver) -> HandOver:
    """Before a submission is sent: from now on the cluster may have the job."""
    return replace(hand, tries=hand.tries + 1)


class HandOverOrder(NamedTuple):
    """The step after the answer to an order: to submit a job, or to end the waiting one."""

    obeyed: Callable[[HandOver, Accepted], HandOver]
    refused: Callable[[HandOver], HandOver]  # by the only one that has left
    words: str  # of a refusal
    doubt: NextAct  # the question after it, where an earlier try may still be on its way


def tried(hand: HandOver, answer: Tried) -> HandOver:
    """After the submission that `leaving` has announced.

    A job that was to move is offered to its own cluster last. If that refuses it, it is submitted
    there again, because it would be lost otherwise.
    """
    refused = _again if _is_back(hand) else _next
    return _ordered(hand, answer, HandOverOrder(_placed, refused, "refused it", NextAct.PROVE))


def taken(hand: HandOver, answer: Tried) -> HandOver:
    """After the order to end the waiting job, which `leaving` has announced."""
    return _ordered(hand, answer, HandOverOrder(_free, _stayed, "keeps it", NextAct.KEEP))


def _ordered(hand: HandOver, answer: Tried, order: HandOverOrder) -> HandOver:
    match answer:
        case Accepted():
            return order.obeyed(hand, answer)
        case Declined():
            told = _told(hand, f"{order.words}: {answer.why}")
            # Nothing says that an earlier try is refused too.
            return replace(told, act=order.doubt) if hand.tries > 1 else order.refused(told)
        case Unheard() if answer.left:
            return _silent(hand, answer)
        case Unheard():
            back = _told(replace(hand, tries=hand.tries - 1), f"was not reached: {answer.why}")
            return back if back.tries else order.refused(back)
        case _:
            assert_never(answer)


def paused(hand: HandOver, answer: Tried) -> HandOver:
    """After the order to save and leave its GPUs, which `leaving` has announced."""
    return _ordered(hand, answer, HandOverOrder(_leaves, _stayed, "keeps it", NextAct.KEEP))


def awaited(hand: HandOver, answer: Left) -> HandOver:
    """After the question whether the paused job has left its GPUs."""
    match answer:
        case SavedThere():
            told, known = _told(hand, "has paused it"), _moving(hand)
            if known.before is BeforeMove.PAUSED and known.version == answer.version:
                # It has not changed, and yet its cluster does not end it.
                return _leaves(replace(told, wanted=False), None)
            moving = known._replace(version=answer.version, before=BeforeMove.PAUSED)
            # Serialized specs one after the other are one: fields of the later one count.
            spec = hand.spec + answer.more
            return replace(told, moving=moving, act=NextAct.TAKE, tries=0, spec=spec)
        case StillLeaves():
            return _told(hand, "lets it save")
        case Declined():
            return _ended_there(_told(hand, f"keeps it: {answer.why}"))
        case Unheard():
            return _silent(hand, answer)
        case _:
            assert_never(answer)


def resumed(hand: HandOver, answer: Tried) -> HandOver:
    """After the order to go on there, which `leaving` has announced."""
    match answer:
        case Accepted():
            return _ended_there(_told(hand, "lets it go on"))
        case Declined():  # it has ended, or goes on already
            return _ended_there(_told(hand, f"keeps it: {answer.why}"))
        case Unheard():
            return _silent(hand, answer)
        case _:
            assert_never(answer)


def kept(hand: HandOver, answer: Proof) -> HandOver:
    """After the question whether the order to end or to pause it has taken effect."""
    match answer:
        case Accepted() if _moving(hand).before is BeforeMove.RUNS:
            return _leaves(hand, answer)
        case Accepted():
            return _free(hand, answer)
        case Withdrawn():
            return _stayed(hand)
        case Unheard():
            return _silent(hand, answer)
        case _:
            assert_never(answer)


def proven(hand: HandOver, answer: Proof) -> HandOver:
    """After the question whether a job exists under the key."""
    match answer:
        case Accepted():
            return _placed(hand, answer)
        case Withdrawn() if hand.act is NextAct.END:
            return _ended(_told(hand, "has no job of it"), HandOverState.GIVEN_UP)
        case Withdrawn() if _is_back(hand):
            # Under another key: with its deadlines of then, a repeat could be refused for ever.
            told = _told(hand, "has no job of it")
            return _again(replace(told, act=NextAct.SUBMIT, unused=hand.unused + 1))
        case Withdrawn():
            return _next(_told(hand, "has no job of it"))
        case Unheard():
            return _silent(hand, answer)
        case _:
            assert_never(answer)


def given_up(hand: HandOver) -> HandOver:
    """The user gives it up. If a cluster may have the job, that is asked first.

    A job that was to move stays, if its cluster has not ended it.
    """
    if not hand.is_open:
        return hand
    if hand.act in _AT_ITS_OWN:
        unwanted = replace(hand, wanted=False)
        if hand.act is NextAct.AWAIT:
            return _leaves(unwanted, None)
        if hand.act is NextAct.RESUME:
            return unwanted
        return replace(unwanted, act=NextAct.KEEP) if hand.tries else _stayed(unwanted)
    if hand.tries:
        return replace(hand, act=NextAct.END)
    return _ended(hand, HandOverState.GIVEN_UP)


def _placed(hand: HandOver, answer: Accepted) -> HandOver:
    told = _told(hand, f"has it as job {answer.job}")
    return _ended(replace(told, job=answer.job), HandOverState.PLACED)


def _silent(hand: HandOver, answer: Unheard) -> HandOver:
    """The question may have arrived, and is repeated."""
    return _told(hand, f"did not answer: {answer.why}")


def _moving(hand: HandOver) -> MovingJob:
    if hand.moving is None:
        raise ValueError(f"hand-over {hand.number} moves no job")
    return hand.moving


def _leaves(hand: HandOver, _: Accepted | None) -> HandOver:
    """The order to pause has taken effect."""
    return replace(hand, act=NextAct.AWAIT if hand.wanted else NextAct.RESUME, tries=0)


def _free(hand: HandOver, _: Accepted) -> HandOver:
    """The waiting job has ended without having run: another cluster may get it."""
    told = _told(hand, "has let it go")
    return replace(told, act=NextAct.SUBMIT, tries=0)


def _stayed(hand: HandOver) -> HandOver:
    """Its cluster has not ended it.

    A job that this hand-over has paused is not left paused. If it has changed, its state is asked
    for again.
    """
    if _moving(hand).before is BeforeMove.PAUSED:
        return _leaves(hand, None)
    return _ended_there(hand)


def _ended_there(hand: HandOver) -> HandOver:
    return _ended(replace(hand, job=_moving(hand).job), HandOverState.STAYED)


def _is_back(hand: HandOver) -> bool:
    """Whether a job that was to move is on its way to its own cluster again."""
    return hand.moving is not None and hand.place + 1 == len(hand.order)


def _again(hand: HandOver) -> HandOver:
    """It stays open, and no cluster has the job now."""
    return replace(hand, tries=0)


def _next(hand: HandOver) -> HandOver:
    """Go to the next cluster of the order; after the last one no cluster has the job."""
    if hand.place + 1 == len(hand.order):
        return _ended(hand, HandOverState.REFUSED)
    return replace(hand, place=hand.place + 1, tries=0, act=NextAct.SUBMIT)


def _ended(hand: HandOver, state: HandOverState) -> HandOver:
    """End it without its spec, which may hold secrets."""
    return replace(hand, state=state, spec=b"")


def _told(hand: HandOver, words: str) -> HandOver:
    line = f"{hand.cluster} {words}"
    return hand if hand.story[-1:] == (line,) else replace(hand, story=(*hand.story, line))
