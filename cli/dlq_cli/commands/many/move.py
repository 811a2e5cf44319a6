"""`dlq move`: a waiting job to another cluster of the list."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.clusters.listed import Clusters, parted
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import InvalidRequest


@click.command(
    epilog=examples(
        "dlq move lab:17",
        "dlq move lab:17 --to roof --anyway",
        "dlq move lab:17 --test-only --json",
    )
)
@click.option("--to", metavar="CLUSTERS", default="any", help="To the best of these: any, or a,b.")
@click.option(
    "--anyway", is_flag=True, help="Also where its own cluster would end it first: to empty one."
)
@click.option("--choose", "rule", metavar="RULE", help="soonest or cheapest.  [default: soonest]")
@click.option("--within", metavar="TIME", help="Wait for offers.  [default: 10s]")
@click.option("--parsable", is_flag=True, help="Print the new name alone.")
@click.option("--test-only", is_flag=True, help="Show the offers, and move nothing.")
@json_option
@click.argument("job")
@pass_app
def move(
    app: App,
    job: str,
    to: str,
    anyway: bool,
    rule: str | None,
    within: str | None,
    parsable: bool,
    test_only: bool,
    as_json: bool,
) -> None:
    """Move JOB, such as lab:17, to a cluster that would end it earlier.

    The job must wait, and must never have run. It ends at its own cluster before another one gets
    it, so it loses its place in line. Where all others refuse it then, it is submitted at its own
    cluster again.
    """
    clusters = Clusters(app)
    cluster, name = parted(app, job)
    if not cluster:
        raise InvalidRequest("name the job with its cluster, such as lab:17", hint="dlq clusters")
    with quiet_grpc():
        from dlq_cli.clusters.going import ManyWishes, read_rule, read_within
        from dlq_cli.clusters.moving import move_job
    wishes = ManyWishes(
        to=to,
        rule=read_rule(rule),
        within_s=read_within(within),
        request_id="",
        test_only=test_only,
        parsable=parsable,
        as_json=as_json,
    )
    try:
        move_job(app, clusters, cluster, name, wishes, anyway=anyway)
    finally:
        clusters.close()
