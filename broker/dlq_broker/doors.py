"""The port to a cluster: the questions of a hand-over, and their possible answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from dlq_broker.offers import OfferAnswer


class Accepted(NamedTuple):
    """A job exists under this key, from this try or an earlier one."""

    job: str  # its number there, of an array that of the array


class Declined(NamedTuple):
    """This try was refused, and has no effect. It says nothing about earlier tries."""

    why: str
    reason: str = ""  # the word of the error


class Unheard(NamedTuple):
    """There was no answer. `left`: the message may have reached the cluster."""

    why: str
    left: bool = True


class Withdrawn(NamedTuple):
    """No job exists under this key, and none will."""


class SavedThere(NamedTuple):
    """A paused job has left its GPUs.

    `more`: fields for its spec elsewhere, a serialized JobSpec, with which it goes on from its
    checkpoint.
    """

    version: int
    more: bytes


class StillLeaves(NamedTuple):
    """A paused job saves, or is leaving its GPUs."""


class WaitState(StrEnum):
    """The outcome of a job's wait for its first start."""

    WAITS = "waits"
    STARTED = "started"
    LEFT = "left"  # it was held, or has ended, before a start: nobody foretold that


class JobWait(NamedTuple):
    """`waited_s`: from its submission to its first start by the cluster's clock; 0
    without a start.
    """

    state: WaitState
    waited_s: float = 0.0


Tried = Accepted | Declined | Unheard
Proof = Accepted | Withdrawn | Unheard
Left = SavedThere | StillLeaves | Declined | Unheard


class ClusterDoor(Protocol):
    """One listed cluster. Each call is one try, ends in bounded time, and raises no DlqError."""

    @property
    def name(self) -> str: ...
    @property
    def site(self) -> str:
        """The cluster itself, and the user there: a list may give its name to another cluster."""
        ...

    def offer(self, spec: bytes, within_s: float) -> OfferAnswer:
        """When the job would start and end there, or why there is no offer. Changes nothing."""
        ...

    def offer_of(self, job: str, within_s: float, *, looks: bool = True) -> OfferAnswer:
        """The same for a job that is there already.

        `looks` False: wait for no forecast. The answer then says only whether the cluster could
        take the job back as it is.
        """
        ...

    def waits(self, jobs: Sequence[str], within_s: float) -> Mapping[str, JobWait]:
        """The waits of these jobs there; for an array that of its first task. Changes nothing.

        Jobs that it does not answer in time are left out.
        """
        ...

    def take(self, job: str, version: int, key: str) -> Tried:
        """End a job that waits there, if it is still this version.

        A repeat of an accepted order is accepted, and changes nothing.
        """
        ...

    def pause(self, job: str, key: str) -> Tried:
        """Let a job save and leave its GPUs, and keep it there.

        Refused if work would be lost. A repeat of an accepted order is accepted, and changes
        nothing.
        """
        ...

    def left(self, job: str) -> Left:
        """Whether a paused job has left its GPUs. Changes nothing.

        Declined: it is no longer paused, or has ended.
        """
        ...

    def resume(self, job: str, key: str) -> Tried:
        """Let a paused job go on there. Repeats are as for `pause`."""
        ...

    def submit(self, spec: bytes, key: str) -> Tried:
        """Submit the job under this key.

        A repeat of an accepted one is accepted as the same job. With another spec it is refused.
        """
        ...

    def withdraw(self, key: str) -> Proof:
        """Find out whether the request with this key has taken effect; if not, it never will.

        May be repeated.
        """
        ...
