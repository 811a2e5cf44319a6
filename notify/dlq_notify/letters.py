"""A letter as text: its subject, its lines, and the fields of a signed call.

Everything here is plain text of one line each. The targets make it harmless in their own markup.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dlq_common.text.instants import format_instant
from dlq_notify.store import NotifyLetter
from dlq_notify.wording import TEST_WORD, clean

LONGEST_SUBJECT = 160
MOST_LINES = 30
_COUNTED = {
    "job_completed": "completed", "job_failed": "failed", "job_timed_out": "timed out",
    "job_cancelled": "cancelled", "job_poisoned": "held", "job_ran": "started",
    "job_admitted": "pending", "job_requeued": "requeued", "job_displaced": "preempted",
    "job_reclaimed": "reclaimed", "promise_at_risk": "promise at risk",
    "promise_safe": "promise safe", "promise_missed": "promise missed",
    "promise_broken": "promise broken", "promise_dropped": "promise dropped",
    "attempt_warned": "time limit near", "start_moved": "start moved",
    "events_lost": "events lost", TEST_WORD: "test",
}  # fmt: skip


class Output(NamedTuple):
    """The last lines of output of a job that has failed."""

    job_id: str
    rank: int
    lines: tuple[str, ...]


class Content(NamedTuple):
    """A message before it is dressed for its target."""

    letter_id: str
    cluster: str
    user: str
    rule_id: str
    subject: str
    lines: tuple[str, ...]
    outputs: tuple[Output, ...]
    document: dict[str, Any]  # for programs

    @property
    def text(self) -> str:
        """All of it, for people."""
        parts = [*self.lines]
        for output in self.outputs:
            parts += ["", f"last lines of job {output.job_id}, rank {output.rank}:"]
            parts += [f"    {line}" for line in output.lines]
        parts += [
            "",
            f"rule {self.rule_id} of {self.user}; end it: dlq notify remove {self.rule_id}",
        ]
        return "\n".join(parts)


def content_of(letter: NotifyLetter, cluster: str, outputs: tuple[Output, ...] = ()) -> Content:
    """The content of a letter, the same in every try but for the output."""
    lines = [one.text for one in letter.notices[:MOST_LINES]]
    left = letter.total - len(lines)
    if letter.total > 1:
        lines = [counted(letter.counts), "", *lines]
    if left > 0:
        lines.append(f"and {left} more")
    return Content(
        letter_id=letter.letter_id,
        cluster=clean(cluster),
        user=letter.user,
        rule_id=letter.rule_id,
        subject=_subject(letter, clean(cluster)),
        lines=tuple(lines),
        outputs=outputs,
        document=_document(letter, cluster, outputs),
    )


def counted(counts: dict[str, int]) -> str:
    """`9,990 completed, 10 failed`."""
    return ", ".join(f"{count:,} {_COUNTED.get(kind, kind)}" for kind, count in counts.items())


def _subject(letter: NotifyLetter, cluster: str) -> str:
    first = letter.notices[0]
    if letter.total == 1:
        said = first.text
    elif first.group and all(one.group == first.group for one in letter.notices):
        said = f"array {first.group} ({first.name}): {counted(letter.counts)}"
    else:
        said = counted(letter.counts)
    subject = f"[dlq {cluster}] {said}"
    return subject if len(subject) <= LONGEST_SUBJECT else f"{subject[: LONGEST_SUBJECT - 1]}…"


def _document(letter: NotifyLetter, cluster: str, outputs: tuple[Output, ...]) -> dict[str, Any]:
    return {
        "version": 1,
        "id": letter.letter_id,
        "cluster": cluster,
        "rule": letter.rule_id,
        "user": letter.user,
        "made_time": format_instant(letter.made_s),
        "counts": letter.counts,
        "total": letter.total,
        "events": [
            {
                "sequence": one.sequence,
                "event": one.word,
                "kind": one.kind,
                "time": format_instant(one.time_s),
                "job_id": one.job_id or None,
                "job_name": one.name or None,
                "array_id": one.group or None,
                "text": one.text,
            }
            for one in letter.notices
        ],
        "outputs": [
            {"job_id": one.job_id, "rank": one.rank, "lines": list(one.lines)} for one in outputs
        ],
    }
