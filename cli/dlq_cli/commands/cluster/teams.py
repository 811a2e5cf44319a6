"""`dlq teams`: the teams, their limits and their use."""

from __future__ import annotations

from collections.abc import Iterator

import click
from google.protobuf.message import Message

from dlq.v1 import team_pb2
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import teams_facts
from dlq_cli.facts.common import document
from dlq_cli.output.render import Cell, table
from dlq_client.teams import Teams

CELLS = (
    Cell("TEAM"),
    Cell("MEMBER"),
    Cell("GPUS", right=True),
    Cell("QUOTA", right=True),
    Cell("BORROWED", right=True),
    Cell("LIMIT", right=True),
    Cell("PROMISED", right=True),
    Cell("RUNNING", right=True),
    Cell("WAITING", right=True),
    Cell("JOBS", right=True),
    Cell("SHARE", right=True),
    Cell("USED", right=True),
)


@click.command(epilog=examples("dlq teams", "dlq teams vision --json"))
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@click.argument("name", required=False, default="")
@pass_app
def teams(app: App, name: str, no_header: bool, as_json: bool) -> None:
    """The teams that you are in (operators: all), with their limits and their use.

    QUOTA is a team's right: GPUs beyond it are BORROWED, and given back when other teams claim
    their quota. LIMIT is the most that it may hold. JOBS have not ended: they run, wait, or are
    held. `/N` after a count is its limit. USED is recent use against the due by SHARE: 1.00 is
    exactly due, and a lower value comes first.
    """
    answer = Teams(app.connection()).list(name)
    if as_json:
        click.echo(document(teams_facts(answer)))
        return
    rows = [row for team in answer.teams for row in _rows(team)]
    rows += [_row("", member.user, member.rules, member.use, "") for member in answer.others]
    click.echo(table(CELLS, rows, app.look(), headings=not no_header), nl=False)
    if answer.notice:
        app.say(answer.notice)
    if not rows:
        app.say("no teams: everybody is a team of one, without quotas or limits")


def _rows(team: team_pb2.Team) -> Iterator[list[str]]:
    quota = str(team.guaranteed_gpu_quota) if team.HasField("guaranteed_gpu_quota") else ""
    yield _row(team.name, "", team.rules, team.use, quota)
    for member in team.members:
        shown = member.user + (" (default)" if member.is_default else "")
        yield _row(team.name, shown, member.rules, member.use, "")


def _row(
    team: str, member: str, rules: team_pb2.TeamRules, use: team_pb2.TeamUse, promised: str
) -> list[str]:
    running = _limited(use.running_job_count, rules, "running_job_limit")
    jobs = _limited(use.job_count, rules, "queued_job_limit")
    return [
        team,
        member,
        str(use.gpu_count),
        str(rules.gpu_quota) if rules.HasField("gpu_quota") else "-",
        str(use.borrowed_gpu_count),
        str(rules.gpu_limit) if rules.HasField("gpu_limit") else "-",
        f"{use.guaranteed_gpu_count}{f'/{promised}' if promised else ''}",
        running,
        str(use.waiting_job_count),
        jobs,
        f"{rules.share:g}" if rules.HasField("share") else "1",
        f"{use.use_ratio:.2f}" if use.HasField("use_ratio") else "-",
    ]


def _limited(count: int, rules: Message, field: str) -> str:
    return f"{count}/{getattr(rules, field)}" if rules.HasField(field) else str(count)
