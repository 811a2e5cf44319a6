#!/usr/bin/env python3
"""An inference scheduler's side of loans: lend the servers that it does not need, take them back
when it does.

    dlq login                                       # on the master's host, as a user of the role
    inference python follow_need.py /run/serving/need --headroom 1 --within 60s --force

The file holds one number: how many servers serving needs now. A program that knows it writes it (an
autoscaler). Other content is reported, and changes nothing. This program remembers nothing that
counts: it asks for each server's state at every look. It may be ended and started at any time, and
the master too.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from dlq.v1 import loan_service_pb2 as wire
from dlq_client.line.connection import connect
from dlq_client.line.identity import default_home, save_identity
from dlq_client.loans import Loans
from dlq_client.login import renew
from dlq_common.errors import Conflict, DlqError, IllegalTransition, Unauthenticated
from dlq_common.text.units import format_span, parse_span

TRIES = 3  # looks that another change each overtook


@dataclass(frozen=True, slots=True)
class Rules:
    """`headroom`: servers kept beside the needed ones. `settle_s`: so long they must have been idle
    before they are lent. `within_s`: by then they are wanted back; `force`: a job that saves for
    longer is ended.
    """

    headroom: int = 0
    settle_s: float = 0.0
    within_s: float | None = None
    force: bool = False


class Scheduler:
    """Holds the number of lent servers at the rest of the need."""

    def __init__(
        self,
        rules: Rules,
        say: Callable[[str], object] = print,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules, self._say, self._now_s = rules, say, now_s
        self._begun_s = now_s()
        self._idle: list[tuple[float, int]] = []  # servers of late: when, and how many

    def look(self, loans: Loans, need: int) -> None:
        """One look at the servers, and its actions. Raises a DlqError where the master does not
        answer, or refuses.
        """
        for _ in range(TRIES):
            servers = loans.servers()
            lent = sum(one.state in ("lending", "lent") for one in servers)
            idle = max(0, len(servers) - need - self._rules.headroom)
            more = self._settled(idle) - lent
            try:
                if idle < lent:
                    self._take_back(loans, lent - idle)
                elif more > 0:
                    self._lend(loans, more)
            except (
                Conflict
            ) as changed:  # somebody was quicker: the next action may be another one now
                self._say(f"looked again: {changed.what}")
            else:
                return

    def _settled(self, idle: int) -> int:
        """The number that has been idle for long enough; none before the first looks cover that
        time.
        """
        now_s, settle_s = self._now_s(), self._rules.settle_s
        self._idle = [one for one in self._idle if now_s - one[0] <= settle_s] + [(now_s, idle)]
        return min(count for _, count in self._idle) if now_s - self._begun_s >= settle_s else 0

    def _lend(self, loans: Loans, more: int) -> None:
        try:
            servers = loans.lend(count=more)
        except IllegalTransition as refused:  # some of them do not answer: lend the others
            able = int(refused.metadata.get("able", 0))
            if not able:
                raise
            servers = loans.lend(count=able)
        self._say(f"lent: {_names(one.node_id for one in servers)}")

    def _take_back(self, loans: Loans, count: int) -> None:
        """As it was planned. Raises Conflict where the plan would differ now."""
        within_s, force = self._rules.within_s, False
        plan = loans.plan(count=count, within_s=within_s)
        if plan.too_long and self._rules.force:
            force = True
            plan = loans.plan(count=count, within_s=within_s, force=True)
        elif plan.too_long:  # they are wanted all the same
            within_s = None
            plan = loans.plan(count=count)
        # With the arguments beside the token the plan outlives the master.
        loans.reclaim(count=count, within_s=within_s, force=force, token=plan.token)
        self._say(_told(plan))


def read_need(path: Path) -> int:
    """The number in the file. ValueError for other content, OSError without the file."""
    text = path.read_text().strip()
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{path}: {text[:40]!r} is no number of servers")
    return int(text)


def _told(plan: wire.ReclaimPlan) -> str:
    by = format_span(round(plan.promised_duration.ToMilliseconds() / 1e3))
    jobs = ", ".join(f"{job.job_id} {'ended' if job.killed else job.action}" for job in plan.jobs)
    return f"back within {by}: {_names(plan.node_ids)}; jobs: {jobs or 'none'}"


def _names(node_ids: Iterable[str]) -> str:
    return ", ".join(sorted(node_ids))


def _span(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    try:
        return None if text is None else parse_span(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("need", type=click.Path(path_type=Path))
@click.option("--headroom", type=click.IntRange(0), default=0, help="Servers kept beside the need.")
@click.option("--settle", default="1m", callback=_span, help="So long idle before they are lent.")
@click.option("--within", callback=_span, help="By then servers are wanted back.")
@click.option("--force", is_flag=True, help="End jobs that would save for longer than that.")
@click.option("--every", default="5s", callback=_span, help="Between two looks.")
def main(
    need: Path, headroom: int, settle: float, within: float | None, force: bool, every: float
) -> None:
    if force and within is None:
        raise click.UsageError("--force ends jobs after --within: say when that is")
    scheduler, said = Scheduler(Rules(headroom, settle, within, force), say=click.echo), ""
    while True:
        try:
            fault = _look(scheduler, need)
        except Unauthenticated as error:
            raise click.ClickException(str(error)) from None
        if fault and fault != said:
            click.echo(fault, err=True)
        said = fault
        time.sleep(every)


def _look(scheduler: Scheduler, need: Path) -> str:
    """Why a look came to nothing; the next one comes anyway."""
    try:
        with connect() as line:
            if line.identity.renewal_due(line.clock.now_s()):
                save_identity(default_home(os.environ), renew(line))
            scheduler.look(Loans(line), read_need(need))
    except Unauthenticated:
        raise
    except DlqError as error:
        return error.what
    except (OSError, ValueError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
