"""The view of a policy at one instant, as bytes for another of our processes on the same host.

The bytes are a pickle, the quickest way to move a hundred thousand small values. A pickle may call
whatever its reader can import, so nothing here reads one as it is: `loads` takes values of the
model, plain containers and nothing else (`ALLOWED`), and refuses the rest before it is made. They
travel over a pipe that the master itself has opened; they are never stored, and never come from a
network.

The pickle of an enum depends on the release of Python: 3.11.2 calls `getattr`, later ones the
class. So `dumps` writes enums of the model itself: the class and the value (`_Reductions`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from operator import methodcaller
from typing import Any, NamedTuple

from dlq_master.model.cluster.frozen import Frozen, freeze, thaw
from dlq_master.model.estimates.slowdowns import Slowdowns
from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.registry import build

# The rooms whose classes may be named, and what else may be.
ROOM = "dlq_master.model."
SLICE = 250  # jobs
PROTOCOL = pickle.HIGHEST_PROTOCOL
AS_IT_SAYS = methodcaller("__reduce_ex__", PROTOCOL)
ALLOWED = frozenset({("collections", "deque"), ("builtins", "frozenset"), ("builtins", "set")})


class Unreadable(ValueError):
    """These bytes are not what one of ours has written."""


class Snapshot(NamedTuple):
    """A view and the name of the policy that is to look at it. Made of values alone."""

    policy: str
    settings: Mapping[str, str]
    now_s: float
    pause_starts: ReasonCode | None
    state: Frozen

    def look(self) -> tuple[View, Policy]:
        """The same view and policy as at the place where it was taken."""
        policy = build(self.policy, self.settings)
        return View(thaw(self.state, policy.ordering), self.now_s, self.pause_starts), policy


def take(view: View, policy: Policy) -> bytes:
    """The snapshot of this instant, ready to be sent."""
    settings = dict(policy.settings)
    shot = (policy.name, settings, view.now_s, view.pause_starts, freeze(view.cluster))
    return dumps(Snapshot(*shot))


def take_promises(view: View, policy: Policy) -> Snapshot:
    """A snapshot with no more in it than decisions about promises look at (`pipeline.promises`):
    the nodes, and jobs with deadlines. Learned facts go on changing: write them down at once
    (`planner.told`).
    """
    cluster = view.cluster
    told = {
        *cluster.judged,
        *cluster.unjudged,
        *cluster.saves.needs_s,
    }  # the last say how long saves take
    jobs = tuple([cluster.jobs[job_id] for job_id in sorted(told)])
    live = [cluster.live_attempt(job) for job in jobs]
    attempts = tuple([attempt for attempt in live if attempt is not None])
    families = {cluster.jobs[job_id].family for job_id in cluster.unjudged}
    state = freeze(cluster, jobs)._replace(
        attempts=attempts,
        history=None,
        slowdowns=Slowdowns(),
        shares=None,
        costs=cluster.costs.of(families),
    )
    settings = dict(policy.settings)
    return Snapshot(policy.name, settings, view.now_s, view.pause_starts, state)


def slices(view: View, policy: Policy) -> Iterator[bytes]:
    """The output of `take`, in pieces that each take a few milliseconds to make. The caller may do
    other work in between: a snapshot is of the instant of the first call of `next`. Joined by
    `read_slices`.
    """
    state = freeze(view.cluster)
    shot = Snapshot(policy.name, dict(policy.settings), view.now_s, view.pause_starts, state)
    jobs = state.jobs
    yield dumps(shot._replace(state=state._replace(jobs=())))
    for begin in range(0, len(jobs), SLICE):
        yield dumps(jobs[begin : begin + SLICE])


def read_slices(pieces: Sequence[bytes]) -> Snapshot:
    """The snapshot again. Raises Unreadable for anything else."""
    first, *rest = pieces
    shot = read(first)
    jobs: list[Job] = []
    for piece in rest:
        jobs += loads(piece)
    return shot._replace(state=shot.state._replace(jobs=(*shot.state.jobs, *jobs)))


def read(data: bytes) -> Snapshot:
    """Reads the output of `take`. Raises Unreadable for anything else."""
    shot = loads(data)
    if not isinstance(shot, Snapshot):
        raise Unreadable(f"a {type(shot).__name__} is no snapshot")
    return shot


def dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Writer(buffer, PROTOCOL).dump(value)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """The values again. Raises Unreadable, and has then called nothing that the bytes name."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"not written by us: {type(error).__name__}: {error}") from error


def _by_value(member: Enum) -> tuple[type[Enum], tuple[Any]]:
    """A member of an enum as its class and its value, in every release of Python."""
    return type(member), (member.value,)


class _Reductions(dict[type, Callable[[Any], Any]]):
    """How values of each class are written, learned when the first one is met.

    A class that is no enum keeps its own reduction. It is noted here all the same. The pickler,
    written in C, then finds it without a call into Python, and a hundred thousand values raise no
    exception each.
    """

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        if issubclass(kind, type):
            raise KeyError(kind)  # a class is written by its name
        self[kind] = _by_value if issubclass(kind, Enum) else AS_IT_SAYS
        return self[kind]


class _Writer(pickle.Pickler):
    """Writes enums by value, and all else as it says itself."""

    dispatch_table = _Reductions()


class _Reader(pickle.Unpickler):
    """Knows the classes of the model by their names, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        ours = module.startswith(ROOM) or module == __name__
        if ours and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        elif (module, name) in ALLOWED:
            return super().find_class(module, name)
        raise Unreadable(f"{module}.{name} is no value of the model")
