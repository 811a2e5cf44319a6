"""Jobs whose steps have stopped: no new step for a multiple of their own pace (`[stall]`).

Beats come with heartbeats and are compared every `LOOK_S`. A job is stalled when two looks in a row
find it so, each with a beat that came since the look before. So a silent line, an agent that is
away, and a master that slept stall nobody. A machine that slept stalls nobody either: the time in
which nobody looked is no time without a step. Nothing is stored but the events. A master that
starts learns each pace anew, from two steps on. A stalled job is told, with the rank that fell
behind; it runs on.

A job that tells no steps is judged by its traffic while that is recorded (`take_sends`). The
judgement is as new as the looks of all its agents, which are half a minute apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlq_common.text.units import approximate_span
from dlq_master.control.attempts import idleness, stragglers
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import Beat, ToldUse
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.policy.activity import FirstStepRule, GangSends, StallRule, StepPace, behind

LOOK_S = 5.0
_AGAIN_S = 15.0  # ranks that have sent so lately go on
_QUIET = StallRule(1.0, 1.0)  # ranks that have sent nothing for so long do not work on a step


@dataclass(slots=True)
class StartWatch:
    """The start of an attempt, until it has a pace (`control/trials/first_steps.py`). Instants of
    this master. `since_s`: it is at work on its first step since then, as far as is known.
    """

    attempt: int
    since_s: float
    heard_s: float  # the last report on its first rank
    looked_s: float = -1.0  # the last look
    due_s: float = 0.0  # the next one
    late: bool = False  # the last look found it late
    lost_s: float = 0.0  # of this, nobody knows anything
    broken: bool = False  # an agent of it was away meanwhile
    stepped: bool = False  # it has told a step
    learned: bool = False  # its first step was seen
    took_s: float = 0.0  # that took so long
    unnamed: bool = False  # it is told, and no rank stands out yet
    words: str = ""  # by which it was told


@dataclass(slots=True)
class Stalls:
    """`paces` of jobs that tell their steps; `seen`: the beats of the last look. `late`: jobs that
    the last look found late; `told`: stalled jobs, with words. `unnamed`: those of which no rank
    stood out. `awake_s`: the end of the last time in which nobody looked. `only_seen`: jobs that
    are told in the journal alone.
    """

    rule: StallRule | None
    first: FirstStepRule | None = None
    starts: dict[JobId, StartWatch] = field(default_factory=dict)
    only_seen: set[JobId] = field(default_factory=set)
    paces: dict[JobId, StepPace] = field(default_factory=dict)
    seen: dict[JobId, Beat] = field(default_factory=dict)
    late: set[JobId] = field(default_factory=set)
    told: dict[JobId, str] = field(default_factory=dict)
    unnamed: set[JobId] = field(default_factory=set)
    steps: dict[JobId, dict[int, int]] = field(default_factory=dict)  # of ranks beyond the first
    sending: dict[AttemptKey, GangSends] = field(default_factory=dict)  # of ranks that are recorded
    look_s: float = 0.0
    first_look_s: float = 0.0
    awake_s: float = 0.0

    def forget(self, job_id: JobId) -> None:
        """It runs no more."""
        for kept in (self.paces, self.seen, self.told, self.steps):
            kept.pop(job_id, None)
        self.late.discard(job_id)
        self.unnamed.discard(job_id)
        self.only_seen.discard(job_id)


def watch(turn: Turn) -> None:
    """Once a second; it looks every `LOOK_S`. A job without a new step costs no call of a
    function.
    """
    stalls = turn.state.attempts.stalls
    if turn.now_s < stalls.look_s:
        return
    if turn.now_s - stalls.look_s > LOOK_S:
        _slept(stalls, turn.now_s)
    stalls.look_s = turn.now_s + LOOK_S
    idleness.forget_ended(turn)
    stragglers.forget_ended(turn)
    jobs, attempts = turn.state.cluster.jobs, turn.state.cluster.attempts
    now_s, paces, seen = turn.now_s, stalls.paces, stalls.seen
    for job_id, beat in turn.state.jobs.beats.items():
        if beat is seen.get(job_id) or beat.step is None:
            continue
        if beat.total is not None and beat.step >= beat.total:
            continue  # its last step: it saves and leaves
        seen[job_id] = beat
        job = jobs.get(job_id)
        key = None if job is None else job.live_key
        if key is None or key not in attempts:
            continue
        pace = paces.get(job_id)
        if pace is None or pace.step != beat.step or pace.attempt != key.number:
            _stepped(turn, attempts[key], beat)
        elif stalls.rule is not None and now_s - pace.since_s > stalls.rule.margin_s:
            _look(turn, stalls.rule, attempts[key], pace)
    ended = [one for one in paces if one not in jobs or jobs[one].live_attempt is None]
    for job_id in ended:
        stalls.forget(job_id)
    if stalls.sending:
        _forget_unseen(turn)


def take_sends(turn: Turn, told: Iterable[ToldUse]) -> None:
    """Looks at the traffic of ranks that are recorded. A job that tells no steps is stalled when
    none of its ranks has sent anything for a multiple of its longest quiet time.
    """
    stalls, attempts = turn.state.attempts.stalls, turn.state.attempts
    for use in told:
        known = attempts.idleness.uses.get(use.key, {}).get(use.node_rank)
        if known is not use or use.sent_ago_s is None or stalls.rule is None:
            continue  # it is of no rank that runs, or it says nothing of traffic
        attempt = turn.state.cluster.attempts[use.key]
        if len(attempt.ranks) > 1:
            sending = stalls.sending.setdefault(use.key, GangSends())
            looked_s = turn.now_s - use.looked_ago_s
            sending.hear(use.node_rank, looked_s, use.sent_ago_s, use.quiet_s)
            if not _tells_steps(stalls, use.key.job_id):
                _judge_sending(turn, stalls.rule, attempt, sending)


def behind_of(turn: Turn, attempt: Attempt, steps: Mapping[int, int]) -> tuple[int, str] | None:
    """The rank that fell behind, and how that shows, if one stands out. `steps` of its ranks."""
    stalls, key, count = turn.state.attempts.stalls, attempt.key, len(attempt.ranks)
    sending = stalls.sending.get(key)
    found = behind(steps, _cores(turn, key), count)
    if found is None and sending is not None and sending.silent_s(_QUIET, count, turn.now_s):
        return sending.behind()
    return found


def note(
    turn: Turn,
    attempt: Attempt,
    words: str,
    found: tuple[int, str] | None,
    *,
    step: int | None = None,
    ending: str = "",
    **facts: Any,
) -> None:
    """Tell a stall: `words`, the rank that was found, and the `ending` of the event."""
    stalls, key, count = turn.state.attempts.stalls, attempt.key, len(attempt.ranks)
    rank = None
    if found is not None and found[0] < count:
        rank = found[0]
        words += f"; rank {rank} on {attempt.ranks[rank].node_id} fell behind: {found[1]}"
    elif count > 1:
        words += f"; no single one of its {count} ranks stands out"
    stalls.told[key.job_id] = words
    node_id = None if rank is None else attempt.ranks[rank].node_id
    turn.note(
        "job_stall_seen" if key.job_id in stalls.only_seen else "job_stalled",
        key=key,
        node_id=node_id,
        cause=words + ending,
        step=step,
        node_rank=rank,
        **facts,
    )


def span(seconds: float) -> str:
    """A time in words that tells short ones apart."""
    return f"{seconds:.2g} s" if seconds < 10.0 else approximate_span(seconds)


# --- helpers, in order of use ---------------------------------------------------------------------


def _forget_unseen(turn: Turn) -> None:
    """Traffic that nobody looks at any more says nothing: its attempt has ended, or its window."""
    stalls, attempts = turn.state.attempts.stalls, turn.state.cluster.attempts
    for key, sending in list(stalls.sending.items()):
        lives = key in attempts
        if lives and sending.is_fresh(turn.now_s):
            continue
        del stalls.sending[key]
        start = stalls.starts.get(key.job_id)
        if _tells_steps(stalls, key.job_id) or (start is not None and start.words):
            continue  # these told it
        if lives:
            _over(turn, key.job_id, "nobody looks at its traffic any more")
        else:
            stalls.told.pop(key.job_id, None)


def _slept(stalls: Stalls, now_s: float) -> None:
    """Nobody looked for long: the master stood still, and perhaps the jobs did too."""
    late_s, stalls.awake_s = now_s - stalls.look_s, now_s
    for job_id, pace in stalls.paces.items():
        stalls.paces[job_id] = pace._replace(since_s=pace.since_s + late_s)
    for start in stalls.starts.values():
        start.since_s = min(now_s, start.since_s + late_s)
        start.heard_s = min(now_s, start.heard_s + late_s)


def _stepped(turn: Turn, attempt: Attempt, beat: Beat) -> None:
    stalls, job_id = turn.state.attempts.stalls, attempt.key.job_id
    step, pace = beat.step or 0, stalls.paces.get(job_id)
    time_s = max(beat.time_s, stalls.awake_s)
    start = stalls.starts.get(job_id)
    if start is not None and start.due_s < math.inf:
        start.stepped, start.due_s = True, 0.0
    if pace is None or pace.attempt != attempt.key.number:
        stalls.paces[job_id] = StepPace(attempt.key.number, step, time_s)
    else:
        stalls.paces[job_id] = pace.heard(step, time_s)
    stalls.late.discard(job_id)
    stalls.unnamed.discard(job_id)
    _over(turn, job_id, f"step {step} has come")


def _over(turn: Turn, job_id: JobId, cause: str) -> None:
    """It goes on, if it was told."""
    stalls = turn.state.attempts.stalls
    if stalls.told.pop(job_id, None) is not None:
        seen = job_id in stalls.only_seen
        stalls.only_seen.discard(job_id)
        if job_id in stalls.starts:
            stalls.starts[job_id].words = ""
        turn.note("job_stall_seen_over" if seen else "job_stall_over", job_id=job_id, cause=cause)


def _look(turn: Turn, rule: StallRule, attempt: Attempt, pace: StepPace) -> None:
    stalls, job_id = turn.state.attempts.stalls, attempt.key.job_id
    patience_s, silent_s = pace.patience_s(rule), turn.now_s - pace.since_s
    stalls.paces[job_id] = pace._replace(silent_s=silent_s)
    runs = attempt.state is AttemptState.RUNNING and attempt.stop_cause is None
    if runs and job_id in stalls.unnamed:
        _name(turn, attempt, pace, silent_s)
    elif not runs or patience_s is None or silent_s <= patience_s or job_id in stalls.told:
        stalls.late.discard(job_id)
    elif job_id not in stalls.late:
        stalls.late.add(job_id)  # the next beat decides
    else:
        _tell(turn, attempt, pace, silent_s)


def _tell(turn: Turn, attempt: Attempt, pace: StepPace, silent_s: float) -> None:
    found, stalls = _behind(turn, attempt, pace), turn.state.attempts.stalls
    if found is None and len(attempt.ranks) > 1:
        stalls.unnamed.add(attempt.key.job_id)
    note(turn, attempt, _stood(pace, silent_s), found, step=pace.step)


def _name(turn: Turn, attempt: Attempt, pace: StepPace, silent_s: float) -> None:
    """Fast steps are missed before any report on CPU time is of the time without steps alone. So a
    job of which no rank stood out is told once more, when a later report shows one.
    """
    found = _behind(turn, attempt, pace)
    if found is not None:
        turn.state.attempts.stalls.unnamed.discard(attempt.key.job_id)
        note(turn, attempt, _stood(pace, silent_s), found, step=pace.step)


def _stood(pace: StepPace, silent_s: float) -> str:
    return (
        f"no step for {approximate_span(silent_s)} after step {pace.step}, where one took"
        f" {span(pace.step_s or 0.0)}"
    )


def _behind(turn: Turn, attempt: Attempt, pace: StepPace) -> tuple[int, str] | None:
    told = turn.state.attempts.stalls.steps.get(attempt.key.job_id, {})
    return behind_of(turn, attempt, {0: pace.step, **told})


def _cores(turn: Turn, key: AttemptKey) -> dict[int, float]:
    """The cores that the ranks have kept busy, by their last reports."""
    uses = turn.state.attempts.idleness.uses.get(key, {})
    return {
        rank: use.cpu_s / use.span_s
        for rank, use in uses.items()
        if use.cpu_s is not None and use.span_s > 0.0
    }


def _tells_steps(stalls: Stalls, job_id: JobId) -> bool:
    """Its steps are known, so they decide."""
    pace = stalls.paces.get(job_id)
    return pace is not None and pace.step_s is not None


def _judge_sending(turn: Turn, rule: StallRule, attempt: Attempt, sending: GangSends) -> None:
    stalls, job_id = turn.state.attempts.stalls, attempt.key.job_id
    silent_s = sending.silent_s(rule, len(attempt.ranks), turn.now_s)
    if silent_s is None:
        newest = [looked_s - sent_s for looked_s, sent_s in sending.last.values()]
        if job_id in stalls.told and max(newest) < _AGAIN_S:
            _over(turn, job_id, "its ranks send again")
    elif job_id not in stalls.told:
        words = (
            f"no rank has sent anything for {approximate_span(silent_s)}, where at most"
            f" {span(sending.quiet_s)} passed between two sends"
        )
        cores, count = _cores(turn, attempt.key), len(attempt.ranks)
        note(turn, attempt, words, sending.behind() or behind({}, cores, count))
