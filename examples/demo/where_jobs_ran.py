"""Where the jobs of several clusters ran, and why: as a table, and as sentences."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from deadlines_kept import OUTCOMES
from site_of_jobs import Job


class JobThatRan(NamedTuple):
    """Its last hand-over, the cluster where it ran and the one that it came from ("": none), and
    the outcome of its deadline.
    """

    hand: Job
    cluster: str
    came_from: str
    deadline: str

    @property
    def why(self) -> str:
        """Why it went to its cluster, of all that made an offer."""
        (chosen,) = [one for one in self.hand["offers"] if one["cluster"] == self.cluster]
        why: str = chosen["why"] or "its only offer"
        return f"{self.came_from} was emptied; {why}" if self.came_from else why

    @property
    def kind_of_why(self) -> str:
        """The same without figures."""
        if self.came_from:
            return f"{self.came_from} was emptied"
        return "costs less" if self.why.startswith("costs") else self.why.partition(",")[0]


def table(ran: Sequence[JobThatRan], clusters: Sequence[str]) -> str:
    """A line for each job, and one for each cluster."""
    rows = [(one.hand["name"], one.cluster, one.deadline, one.why) for one in ran]
    rows.insert(0, ("JOB", "RAN AT", "DEADLINE", "WHY"))
    lines = [f"{name:<10}{cluster:<9}{deadline:<42}{why}" for name, cluster, deadline, why in rows]
    lines += ["", f"{'CLUSTER':<9}{'JOBS':>5}  WHY"]
    for name in clusters:
        counts = Counter(one.kind_of_why for one in ran if one.cluster == name)
        told = ", ".join(f"{why} ({count})" for why, count in counts.most_common())
        lines.append(f"{name:<9}{counts.total():>5}  {told}")
    return "\n".join(lines)


def sums(ran: Sequence[JobThatRan]) -> list[str]:
    """The outcomes of all, as sentences."""
    ends = Counter(one.deadline for one in ran)
    told = "; ".join(f"{ends[word]} {word}" for word in OUTCOMES if ends[word])
    return [
        f"all {len(ran)} jobs completed, each once, and where its hand-over says",
        f"of their deadlines: {told}",
    ]
