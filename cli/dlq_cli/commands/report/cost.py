"""`dlq report cost`: costs of rented machines and of lateness, beside their forecasts."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.commands.report.usage import days_options, groups_of, span_of
from dlq_cli.facts.common import document
from dlq_cli.facts.cost import GROUPS, costs_facts
from dlq_cli.text.costs import cost_csv, cost_text
from dlq_client.usage import Usages
from dlq_common.errors import InvalidRequest


@click.command(
    epilog=examples(
        "dlq report cost",
        "dlq report cost -S 30d --by pool,day",
        "dlq report cost -S 2026-11-01 -E 2026-11-30 --by user --csv > november.csv",
    )
)
@days_options(GROUPS, "job")
@pass_app
def cost(
    app: App,
    since: str | None,
    until: str | None,
    user: str,
    team: str,
    by: str,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Costs of rented machines and of lateness: your jobs and your teams' (operators: all), in
    whole days of UTC.

    COST is a job's part of machines, by GPUs x time; LATE_COST its weight from the due date to its
    end, or to now. The next two are forecasts of the same: from the job's first choice of a
    machine, or else from its submission. OWN_LATE_COST is the forecast cost of lateness on the
    cluster's own nodes alone. Operators also see the use of machines: jobs, boot and idle time, and
    the total forecast when they were asked for.
    """
    if as_csv and as_json:
        raise InvalidRequest("--csv and --json are two forms of the same: take one")
    groups = groups_of(by, GROUPS)
    from_s, until_s = span_of(app, since, until)
    answer = Usages(app.connection()).costs(from_s, until_s, by=groups, user=user, team=team)
    if as_json:
        click.echo(document(costs_facts(answer, groups)))
    elif as_csv:
        click.echo(cost_csv(answer, groups), nl=False)
    else:
        click.echo(cost_text(answer, groups, app.look()), nl=False)
        if not answer.costs and not answer.pools:
            app.say(
                "nothing was rented, and nobody late at a price, in these days; -S 30d looks "
                "further back"
            )
