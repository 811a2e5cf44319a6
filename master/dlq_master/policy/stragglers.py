"""Nodes that slow their gangs down, found by the work times of their ranks. Pure values.

In a synchronous gang all ranks have equal step times, because each step waits for the slowest rank.
So a rank tells its *work times*: those of its steps without the waits for other ranks. A rank is
compared with the median of its peers, the ranks of the same gang on equal GPUs. The figures are
logarithms, so that a pause of one step weighs little and a difference is a ratio.

One gang cannot tell a slow node from a rank with more work. So a part of a job, a rank of a family,
is also compared with the same part on other nodes. An excess that it has there too is of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import erf, exp, log1p, sqrt
from typing import Final, NamedTuple

MOST_STEPS: Final = 400.0  # older ones fade
FRESH_S: Final = 86_400.0  # what was seen of a node counts for a day,
HALF_S: Final = 7_200.0  # and half as much after each two hours
_LIKE_ITSELF: Final = 2.0  # steps in a row resemble each other: so much more variance
_MEDIAN: Final = 1.57  # the variance of a median, as a multiple of that of a mean
_SPREAD: Final = 0.01  # healthy nodes differ so much, at least,
_FEW_SPREAD: Final = 0.02  # or so much where few peers show it
_FEW: Final = 3
_MANY: Final = 16  # among so many peers, one moves no median
_TELLS: Final = 0.95  # the confidence that begins a suspicion,
_KEEPS: Final = 0.8  # and the one that keeps it


class WorkTimes(NamedTuple):
    """Of some steps of a rank: their number, and sums of the logarithms of their seconds."""

    steps: float = 0.0
    logs: float = 0.0
    squares: float = 0.0  # of these logarithms

    def plus(self, new: WorkTimes) -> WorkTimes:
        """Both together. Of the older steps only so many count that all are `MOST_STEPS`."""
        room = max(0.0, MOST_STEPS - new.steps)
        part = 1.0 if self.steps <= room else room / self.steps
        return WorkTimes(*(part * old + one for old, one in zip(self, new, strict=True)))

    @property
    def mean(self) -> float:
        return self.logs / self.steps

    @property
    def variance(self) -> float:
        """Of the mean."""
        each = max(0.0, self.squares / self.steps - self.mean**2)
        return _LIKE_ITSELF * each / self.steps


class StragglerRule(NamedTuple):
    """A node is a suspected straggler from `limit` on, such as 0.05: 5 % more than its peers."""

    limit: float
    steps: float  # fewer steps of a gang say nothing


class Excess(NamedTuple):
    """A rank against its peers: the logarithm of the ratio, and its standard error."""

    ratio_log: float
    error: float
    steps: float


class RankPart(NamedTuple):
    """A part of jobs that are expected to run alike."""

    family: str
    rank: int


class SeenExcess(NamedTuple):
    """The excess of a part on one node, in one gang."""

    excess: Excess
    job: str
    time_s: float


class StragglerScore(NamedTuple):
    """How much longer a node works on a step than its peers, over all of its gangs.

    `confidence`: the probability that it is more than half the limit. `told_apart`: the same parts
    ran on other nodes, or parts of several families ran here.
    """

    excess: float  # 0.1: 10 % longer
    confidence: float
    steps: int
    gangs: int
    told_apart: bool
    suspected: bool
    words: str


def excesses(times: Mapping[int, WorkTimes], kinds: Mapping[int, object]) -> dict[int, Excess]:
    """The ranks of one gang against their peers, which are of the same kind. A rank without peers
    has none.
    """
    found: dict[int, Excess] = {}
    for kind in dict.fromkeys(kinds.values()):
        peers = [rank for rank in times if kinds[rank] == kind]
        means = {rank: times[rank].mean for rank in peers}
        noise = sum(times[rank].variance for rank in peers) / max(1, len(peers))
        shared = _middle(list(means.values()), noise) if len(peers) > _MANY else None
        for rank in peers if len(peers) > 1 else ():
            others = [mean for other, mean in means.items() if other != rank]
            middle, spread = shared or _middle(others, noise)
            variance = times[rank].variance + _MEDIAN * noise / len(others) + spread**2
            found[rank] = Excess(means[rank] - middle, sqrt(variance), times[rank].steps)
    return found


def score(
    rule: StragglerRule,
    mine: Mapping[RankPart, SeenExcess],
    elsewhere: Callable[[RankPart], Iterable[SeenExcess]],
    now_s: float,
    *,
    suspected: bool = False,
) -> StragglerScore | None:
    """A node over all parts that it has had. `elsewhere`: the same part on other nodes. None: no
    part is fresh. `suspected`: it has been so far, and a lower bound keeps it so.
    """
    fresh = {part: one for part, one in mine.items() if _is_fresh(one, now_s)}
    if not fresh:
        return None
    weights = total = information = 0.0
    compared = 0
    for part, one in fresh.items():
        others = [seen for seen in elsewhere(part) if _is_fresh(seen, now_s)]
        usual, doubt = _usual(others)
        compared += bool(others)
        exact = 1.0 / (one.excess.error**2 + doubt)
        weight = exact * 0.5 ** (max(0.0, now_s - one.time_s) / HALF_S)
        weights, total = weights + weight, total + weight * (one.excess.ratio_log - usual)
        information += exact
    mean, limit = total / weights, log1p(rule.limit)
    confidence = _below((mean - limit / 2.0) * sqrt(information))
    bound, sure = (0.6 * limit, _KEEPS) if suspected else (limit, _TELLS)
    told_apart = bool(compared) or len({part.family for part in fresh}) > 1
    return StragglerScore(
        exp(mean) - 1.0,
        confidence,
        round(sum(one.excess.steps for one in fresh.values())),
        len({one.job for one in fresh.values()}),
        told_apart,
        mean >= bound and confidence >= sure,
        _words(fresh, compared, told_apart=told_apart),
    )


def suspects(scores: Mapping[str, StragglerScore]) -> Sequence[tuple[str, StragglerScore]]:
    """The suspected nodes, the slowest first: for checks, and for all that choose among nodes."""
    found = [(node, one) for node, one in scores.items() if one.suspected]
    return sorted(found, key=lambda pair: (-pair[1].excess, pair[0]))


# --- helpers, in order of use ---------------------------------------------------------------------


def _middle(means: Sequence[float], noise: float) -> tuple[float, float]:
    """The median of some ranks, and how far they lie from each other beyond the noise of each."""
    middle = _median(means)
    if len(means) < _FEW:
        return middle, _FEW_SPREAD
    apart = 1.48 * _median([abs(mean - middle) for mean in means])
    return middle, sqrt(max(_SPREAD**2, apart**2 - noise))


def _median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2.0


def _is_fresh(one: SeenExcess, now_s: float) -> bool:
    return 0.0 <= now_s - one.time_s <= FRESH_S


def _usual(others: Sequence[SeenExcess]) -> tuple[float, float]:
    """The excess that a part has on other nodes, and the variance of that figure."""
    if not others:
        return 0.0, 0.0
    return (
        _median([one.excess.ratio_log for one in others]),
        _MEDIAN * sum(one.excess.error**2 for one in others) / len(others) ** 2,
    )


def _below(deviations: float) -> float:
    return 0.5 * (1.0 + erf(deviations / sqrt(2.0)))


def _words(fresh: Mapping[RankPart, SeenExcess], compared: int, *, told_apart: bool) -> str:
    newest = sorted(fresh.items(), key=lambda pair: -pair[1].time_s)[:3]
    ranks = ", ".join(f"rank {part.rank} of job {one.job}" for part, one in newest)
    if compared:
        return f"{ranks}; compared with the same parts on other nodes"
    if told_apart:
        return f"{ranks}; these are jobs of several kinds"
    return f"{ranks}; no other node has had this part, so the job may be the cause"
