"""`dlq report cost`: costs of rented machines and of lateness, beside their forecasts."""

from __future__ import annotations

from functools import partial

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.commands.report.usage import days_options, groups_of, one_form, span_of, tell_in_form
from dlq_cli.facts.usage import COST_GROUPS, costs_facts
from dlq_cli.text.costs import cost_csv, cost_text
from dlq_client.usage import Usages


@click.command(
    epilog=examples(
        "dlq report cost",
        "dlq report cost -S 30d --by pool,day",
        "dlq report cost -S 2026-11-01 -E 2026-11-30 --by user --csv > november.csv",
    )
)
@days_options(COST_GROUPS, "job")
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
    one_form(as_csv=as_csv, as_json=as_json)
    groups = groups_of(by, COST_GROUPS)
    from_s, until_s = span_of(app, since, until)
    answer = Usages(app.connection()).costs(from_s, until_s, by=groups, user=user, team=team)
    facts = costs_facts(answer, groups)
    csv, text = partial(cost_csv, answer, groups), partial(cost_text, answer, groups)
    empty = (
        "nothing was rented, and nobody late at a price, in these days; -S 30d looks further back"
    )
    nothing = "" if answer.costs or answer.pools else empty
    tell_in_form(app, facts, csv, text, nothing, as_csv=as_csv, as_json=as_json)
