"""What readers, watchers and agents are told, and what agents do, beside the rows on disk.

Nobody may see a row before it is on disk. An agent may forget an end only when the rows have it. It
may start and confirm a rank only when that is on its own disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlq_master.model.attempts.attempt import LIVE, Attempt
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_nodeagent.model.launch import RankKey

if TYPE_CHECKING:
    from world.cast.agents import Node
    from world.cast.masters import Master
    from world.cast.world import World

INSTANT_S = 1e-6


class Witness:
    """`first`: the first thing that is wrong; "" as long as all is well."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.first = ""
        self._jobs: dict[JobId, Job] = {}
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._boots: dict[str, str] = {}  # by node
        self._last_event = 0

    def broken(self, words: str) -> None:
        """Something is wrong. The world ends here."""
        if not self.first:
            self.first = words
            self._world.say(f"BROKEN {words}")
            self._world.loop.stop()

    def hold(self, what: bool, words: str) -> None:
        """It must be so."""
        if not what:
            self.broken(words)

    # --- readers ---------------------------------------------------------------------------------

    def read(self, job_id: JobId, job: Job | None) -> None:
        """A reader looks at a job beside the master."""
        version = self._jobs[job_id].version if job_id in self._jobs else -1
        early = job is not None and job.version > version
        self.hold(not early, f"I1: a reader saw job {job_id} before it was on disk")

    def told(self, event: JournalEvent) -> None:
        """A watcher hears of an event."""
        early = event.seq > self._last_event
        self.hold(not early, f"I1: a watcher heard of {event.kind} before it was on disk")

    def speaks(self, master: Master, node: str) -> None:
        """I12: a master says nothing to an agent while another one leads."""
        row, candidate = self._world.row, master.candidate
        if row is not None and candidate is not None:
            mine = row.holder in (candidate.lease.holder, "")
            self.hold(mine, f"I12: {master.name} speaks to {node}, and {row.holder} leads")

    # --- agents ---------------------------------------------------------------------------------

    def contacted(self, node: Node, at_s: float) -> None:
        """I3: the hold of a node's jobs begins before the master's own count of it."""
        heard_s = max(link.heard_s for link in node.links.values())
        words = f"{node.name} counts its hold from {at_s:.3f}, and was last heard at {heard_s:.3f}"
        self.hold(at_s <= heard_s + INSTANT_S, f"I3: {words}")

    def let_go(self, node: Node, key: RankKey) -> None:
        """I11: an agent forgets an end only when it is on the master's disk."""
        attempt = self._attempts.get(AttemptKey(JobId(int(key.job_id)), key.attempt))
        open_ = (
            attempt is not None and attempt.state in LIVE and not attempt.ranks[key.node_rank].gone
        )
        self.hold(not open_, f"I11: the agent of {node.name} takes the end of {key} for confirmed")

    def starts(self, node: Node, key: RankKey) -> None:
        """I3: what an agent starts is on its disk, or after a power cut it would be unknown."""
        written = node.journal.is_written(key)
        self.hold(written, f"I3: the agent of {node.name} starts {key} before it is on its disk")

    def taken(self, node: Node, key: RankKey) -> None:
        """I1: what an agent has said that it takes is on its disk."""
        written = node.journal.is_written(key)
        self.hold(written, f"I1: the agent of {node.name} has taken {key}: it is not on its disk")

    def welcomed(self, node: Node) -> None:
        """I10: the rows have the boot of the host that was welcomed."""
        stored = self._boots.get(node.name)
        words = f"{node.name} is welcomed in {node.host.boot_id}, and the rows say {stored}"
        self.hold(stored == node.host.boot_id, f"I10: {words}")
