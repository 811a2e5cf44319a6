"""`[[idle]]`, `[stall]`, `[first_step]`, `[straggler]` and `[checks]` of master.toml.

Their pages are docs/running/idle.md, first-steps.md, stragglers.md and checks.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlq_common.daemon.config import Seconds
from dlq_common.errors import ConfigError
from dlq_common.text.suggest import did_you_mean
from dlq_master.policy.activity import FirstStepRule, IdleAction, IdleRule, StallRule
from dlq_master.policy.stragglers import MOST_STEPS, StragglerRule

SHORTEST_S, LONGEST_S = 10.0, 7 * 86_400.0  # of a window


@dataclass(frozen=True, slots=True)
class IdleConfig:
    """A rule about jobs that hold GPUs and do not use them. All rules that cover a job count."""

    # A job is idle when its use was below `below` on average over so long, and no step has come.
    window: Seconds = Seconds(1800.0)
    interactive_window: Seconds = Seconds(7200.0)  # the same for interactive jobs
    # The mean utilization of the busiest GPU; of a job without GPUs, the part of its cores.
    below: float = 0.05
    # "warn": shown; "notify": also told by dlq-notify; "pause": saved and taken off; "cancel".
    action: str = "warn"
    dry_run: bool = True  # only the journal says what would be done
    queue: str = ""  # only jobs of this queue; "": of all
    team: str = ""  # only jobs of this team; "": of all
    exempt_users: tuple[str, ...] = ()  # users whose jobs are never idle by it
    exempt_jobs: tuple[str, ...] = ()  # numbers and names of jobs that are never idle by it


@dataclass(frozen=True, slots=True)
class StallConfig:
    """When a job that tells its steps counts as stalled: it is told, and runs on."""

    enabled: bool = True  # false: nobody is told
    factor: float = 2.0  # so many times the job's own pace without a new step,
    margin: Seconds = Seconds(15.0)  # and so much longer

    def rule(self) -> StallRule | None:
        """The same for the core. ConfigError, with the key, for a value that cannot be."""
        if not 1.0 <= self.factor <= 1000.0:
            _refuse("stall.factor", f"{self.factor:g} is not between 1 and 1000")
        if not 0.0 <= self.margin <= LONGEST_S:
            _refuse("stall.margin", "not between 0s and 7d")
        return StallRule(self.factor, self.margin) if self.enabled else None


@dataclass(frozen=True, slots=True)
class FirstStepConfig:
    """When a job that is known to tell its steps, and has told no second one, counts as stalled. It
    has no pace then. The first steps of its family count where five of them are known.
    """

    enabled: bool = True  # false: such a job is never stalled
    window: Seconds = Seconds(900.0)  # so long after its start, while its family shows no more
    interactive_window: Seconds = Seconds(7200.0)  # the same for interactive jobs
    # "warn": shown; "notify": also told by dlq-notify; "pause": saved and taken off; "cancel".
    action: str = "warn"
    dry_run: bool = True  # only the journal says what would be done
    queue: str = ""  # only jobs of this queue; "": of all
    team: str = ""  # only jobs of this team; "": of all
    exempt_users: tuple[str, ...] = ()  # users whose jobs it never judges
    exempt_jobs: tuple[str, ...] = ()  # numbers and names of jobs that it never judges

    def rule(self, stall: StallRule | None, queues: Collection[str]) -> FirstStepRule | None:
        """The same for the core. ConfigError, with the key, for a value that cannot be. `stall`:
        the rule about jobs with a pace; None: nobody is told.
        """
        values = _rule_values(self, "first_step.", queues)
        if stall is None or not self.enabled:
            return None
        return FirstStepRule(**values, stall=stall, section="[first_step]")


@dataclass(frozen=True, slots=True)
class StragglerConfig:
    """When a node counts as a suspected straggler: its ranks work longer on a step than their
    peers.
    """

    enabled: bool = True  # false: nobody is judged
    limit: float = 0.05  # so much longer, of 1: with 0.05, 5 %
    steps: int = 80  # a gang says nothing before each of its ranks has made so many steps

    def rule(self) -> StragglerRule | None:
        """The same for the core. ConfigError, with the key, for a value that cannot be."""
        if not 0.01 <= self.limit <= 10.0:
            _refuse("straggler.limit", f"{self.limit:g} is not between 0.01 and 10")
        if not 10 <= self.steps <= MOST_STEPS:
            _refuse("straggler.steps", f"not between 10 and {MOST_STEPS:.0f}")
        return StragglerRule(self.limit, self.steps) if self.enabled else None


CHECK_KINDS = ("memory", "matrix", "disk", "checkpoints", "clock", "pull", "all_reduce")
BY_ITSELF = ("join", "undrain", "idle", "suspect")
CHECK_TIMES = (*BY_ITSELF, "wide")


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """A kind of check, `[checks.kinds.matrix]`, that the master makes by itself."""

    # The least figure that passes; of `clock` (ms) and `pull` (s) the most; 0: every figure.
    limit: float = 0.0
    # "join": of a node that has joined or booted; "undrain": after a drain; "idle": of idle nodes;
    # "suspect": of a suspected straggler; "wide": of idle nodes before a wide start.
    when: tuple[str, ...] = BY_ITSELF
    timeout: Seconds = Seconds(60.0)  # a check that runs for longer has failed: it hangs


@dataclass(frozen=True, slots=True)
class ChecksConfig:
    """Short jobs of the master that measure nodes. A node that fails one is quarantined."""

    user: str = ""  # the user whose account runs them; "": no node is checked
    kinds: Mapping[str, CheckConfig] = field(default_factory=dict)  # by their names
    every: Seconds = Seconds(86_400.0)  # an idle node that has passed is checked again after this
    retry: Seconds = Seconds(600.0)  # and one that has not passed after this
    # So long after a check was due it goes before jobs: the node gets it as soon as it is idle.
    overdue: Seconds = Seconds(21_600.0)
    # A suspected straggler is checked once in this time. For jobs of one user, four nodes are.
    suspect_every: Seconds = Seconds(21_600.0)
    at_once: int = 1  # so many checks run at once, beside those that people ask for
    # A job, a task or a whole group of so many GPUs begins after the checks "wide" of idle nodes;
    # 0: none waits for any.
    wide_gpus: int = 0
    wide_wait: Seconds = Seconds(60.0)  # such a job waits no longer than this
    wide_age: Seconds = Seconds(3600.0)  # a node that has passed so lately is not checked for it
    heed_load: bool = True  # a node with a high load cannot fail: it is checked again later
    work: Seconds = Seconds(2.0)  # how long `memory` and `matrix` compute
    mib: int = 64  # `disk` and `checkpoints` write so many MiB
    directory: str = "/tmp"  # where `disk` writes; the file has no name there
    clock_server: str = ""  # HOST[:PORT] of the time server of `clock`
    image: str = ""  # the image of `pull`

    def check(self) -> None:
        """ConfigError, with the key, for a value that cannot be."""
        for kind, rule in self.kinds.items():
            where = f"checks.kinds.{kind}"
            if kind not in CHECK_KINDS:
                told = f"no such check; there are {', '.join(CHECK_KINDS)}"
                _refuse(where, f"{told}{did_you_mean(kind, CHECK_KINDS)}")
            if unknown := sorted(set(rule.when) - set(CHECK_TIMES)):
                _refuse(f"{where}.when", f"{unknown[0]!r} is none of {', '.join(CHECK_TIMES)}")
            if not 0.0 <= rule.limit < float("inf"):
                _refuse(f"{where}.limit", "is 0 or more")
            if not 1.0 <= rule.timeout <= LONGEST_S:
                _refuse(f"{where}.timeout", "is between 1s and 7d")
        for kind, key in (("clock", "clock_server"), ("pull", "image"), ("disk", "directory")):
            if kind in self.kinds and not getattr(self, key):
                _refuse(f"checks.{key}", f"is needed by the check {kind}")
        if self.kinds and not self.user:
            _refuse("checks.user", "in whose account? Name a user")
        if self.wide_gpus < 0:
            _refuse("checks.wide_gpus", "is 0 or more")
        for key in ("every", "retry", "suspect_every", "at_once", "mib", "wide_wait"):
            if getattr(self, key) < 1:
                _refuse(f"checks.{key}", "is at least 1")


def idle_rules(rules: Sequence[IdleConfig], queues: Collection[str]) -> tuple[IdleRule, ...]:
    """The rules for the core. ConfigError, with the key, for a value that cannot be."""
    return tuple(idle_rule(rule, f"idle[{number}].", queues) for number, rule in enumerate(rules))


def idle_rule(rule: IdleConfig, where: str, queues: Collection[str]) -> IdleRule:
    """One rule; its keys begin with `where` in the file."""
    values = _rule_values(rule, where, queues)
    if not 0.0 < rule.below <= 0.5:
        _refuse(f"{where}below", f"{rule.below:g} is not above 0 and at most 0.5")
    return IdleRule(**values, below=rule.below)


def _rule_values(
    rule: IdleConfig | FirstStepConfig, where: str, queues: Collection[str]
) -> dict[str, Any]:
    """The values of any rule that acts on jobs."""
    for key in ("window", "interactive_window"):
        if not SHORTEST_S <= getattr(rule, key) <= LONGEST_S:
            _refuse(where + key, "a window is between 10s and 7d")
    actions = [action.value for action in IdleAction]
    if rule.action not in actions:
        told = f"{rule.action!r} is none of {', '.join(actions)}"
        _refuse(f"{where}action", f"{told}{did_you_mean(rule.action, actions)}")
    if rule.queue and rule.queue not in queues:
        told = f"there is no queue {rule.queue!r}{did_you_mean(rule.queue, queues)}"
        _refuse(f"{where}queue", told)
    return {
        "window_s": rule.window,
        "interactive_window_s": rule.interactive_window,
        "action": IdleAction(rule.action),
        "dry_run": rule.dry_run,
        "queue": rule.queue,
        "team": rule.team,
        "exempt_users": frozenset(rule.exempt_users),
        "exempt_jobs": frozenset(rule.exempt_jobs),
    }


def _refuse(key: str, words: str) -> None:
    raise ConfigError(f"{key}: {words}", key=key)
