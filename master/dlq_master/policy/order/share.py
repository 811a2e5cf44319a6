"""Fair share: of jobs of the same class and queue, the one whose team has had less than its due
comes first.

The due of a team is its weight against those of all teams that have used GPUs lately or ask for
some. Inside a team the same holds for its members. The ratio of use to due decides in steps of a
quarter. So jobs of teams with about their share stand in the order of the policy. In the manner of
Slurm's fair tree, teams come before members.

The ideal would weigh anew with every second that somebody runs. It is done once in a best-effort
term: waiting jobs are kept in order, and a change of standing changes the order of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from math import log
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.accounts import of_member, of_team, team_of
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had, Key, KeyRule, Learned
from dlq_master.model.plan import Weigh
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode

HALF_LIFE_S = 7 * 86_400.0
STEP = 1.25  # of the ratio, from one level to the next
MOST = 8  # levels above and below; 1.25^8 is about 6
# A running job stands so many levels better than if it waited. It is taken off its GPUs for shares
# only where others have had less than half as much. The others have their turn when GPUs become
# free.
KEEPS = 3
# So long all GPUs are taken to have been used just as is due, so that the first minutes of a
# cluster decide nothing.
PRIOR_S = 3600.0
_WEIGHED = Reason(ReasonCode.LEARNED, detail="what teams have used of their shares")


class ShareRules(NamedTuple):
    """`weights`: team or member (model.accounts) -> what is due to it against others; 1 if nothing
    is told.
    """

    half_life_s: float = HALF_LIFE_S
    weights: Mapping[str, float] | None = None


def shared(rule: KeyRule | None) -> KeyRule:
    """The same order among those who stand alike."""
    latest: tuple[Key | None, Mapping[str, int], Key] | None = None

    def made(learned: Learned) -> Key:
        nonlocal latest
        key, standing = None if rule is None else rule(learned), learned.standing
        if latest is not None and latest[0] is key and latest[1] is standing:
            return latest[2]

        def by_share(job: Job, had: Had) -> tuple[float, ...]:
            account = job.account
            team, member = standing.get(team_of(account), 0), standing.get(account, 0)
            place = (team, member) if had.since_s is None else (team - KEEPS, member - KEEPS)
            return place if key is None else (*place, *key(job, had))

        latest = key, standing, by_share
        return by_share

    return made


def weigh(view: View, rules: ShareRules) -> Weigh | None:
    """How everybody stands in this term; None: that is known."""
    cluster, shares = view.cluster, view.cluster.shares
    term = int(view.now_s // cluster.terms.be_term_s)
    if shares is None or term <= shares.term:
        return None
    gpus = cluster.capacity.all_gpus
    found = ratios(usage(cluster, view.now_s), asking(cluster), rules, gpus * PRIOR_S)
    levels = {name: level_of(ratio) for name, ratio in found.items()}
    return Weigh(term, tuple(sorted((n, level) for n, level in levels.items() if level)), _WEIGHED)


def usage(cluster: Cluster, now_s: float) -> dict[str, float]:
    """Account -> GPU-seconds lately, running jobs included: O(who runs, accounts)."""
    if cluster.shares is None:
        return {}
    ledger = cluster.shares.ledger
    found = defaultdict(float, ledger.at(now_s))
    for key, attempt in cluster.attempts.items():
        if attempt.started_time_s is not None:
            job = cluster.jobs[key.job_id]
            gpus = job.request.weighed(attempt.lease.allocation.width) * attempt.speed
            found[job.account] += ledger.used(gpus, attempt.started_time_s, now_s)
    return dict(found)


def asking(cluster: Cluster) -> set[str]:
    """Accounts with jobs that wait: O(those)."""
    waiting = cluster.waiting.by_priority.values()
    jobs = cluster.jobs
    return {
        jobs[job_id].account for shapes in waiting for fifo in shapes.values() for job_id in fifo
    }


def ratios(
    used: Mapping[str, float], also: Iterable[str], rules: ShareRules, prior_gpu_s: float = 0.0
) -> dict[str, float]:
    """Team or account -> its part of the use of all over its part of the due of all. The names are
    those of `used` and `also`; empty where nothing was used. `prior_gpu_s`: GPU-seconds that all of
    a kind together have used as is due beside that.
    """
    accounts = {*used, *also}
    members: dict[str, dict[str, float]] = defaultdict(dict)
    for account in accounts:
        members[team_of(account)][account] = used.get(account, 0.0)
    teams = {team: sum(theirs.values()) for team, theirs in members.items()}
    found = _ratios(teams, lambda team: of_team(rules.weights, team), prior_gpu_s)
    for theirs in members.values():
        if len(theirs) > 1:
            found.update(
                _ratios(theirs, lambda account: of_member(rules.weights, account), prior_gpu_s)
            )
    return found


def level_of(ratio: float) -> int:
    """0 for about what is due, below 0 for less."""
    if ratio <= STEP**-MOST:
        return -MOST
    return max(-MOST, min(MOST, round(log(ratio) / log(STEP))))


def _ratios(
    used: Mapping[str, float], weight_of: Callable[[str], float | None], prior_gpu_s: float
) -> dict[str, float]:
    total = sum(used.values()) + prior_gpu_s
    if total <= 0.0:
        return {}
    weights = {name: 1.0 if (it := weight_of(name)) is None else it for name in used}
    due = sum(weights.values())
    return {
        name: (gpu_s * due / weights[name] + prior_gpu_s) / total for name, gpu_s in used.items()
    }
