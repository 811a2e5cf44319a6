"""`dlq move`: jobs to other clusters of the list."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.clusters.listed import Clusters, parted
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.patience import duration_s
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import InvalidRequest

# Each round asks all clusters about many jobs.
_LEAST_EVERY_S = 60


@click.command(
    epilog=examples(
        "dlq move lab:17",
        "dlq move lab:17 --to roof --anyway",
        "dlq move lab:17 --test-only --json",
        "dlq move --all",
        "dlq move --all --every 10m",
        "dlq move --leave lab",
    )
)
@click.option("--to", metavar="CLUSTERS", default="any", help="To the best of these: any, or a,b.")
@click.option(
    "--anyway", is_flag=True, help="Also where its own cluster would end it first: to empty one."
)
@click.option("--all", "every_job", is_flag=True, help="All jobs that wait, where they gain by it.")
@click.option("--leave", metavar="CLUSTER", help="All jobs of this cluster, also running ones.")
@click.option("--every", metavar="TIME", help="With --all or --leave: again and again.")
@click.option(
    "--choose", "rule", metavar="RULE", help="spread, soonest or cheapest.  [default: spread]"
)
@click.option("--within", metavar="TIME", help="Wait for offers.  [default: 10s]")
@click.option("--parsable", is_flag=True, help="Print the new name alone.")
@click.option("--test-only", is_flag=True, help="Show the offers, and move nothing.")
@json_option
@click.argument("job", required=False)
@pass_app
def move(
    app: App,
    job: str | None,
    to: str,
    anyway: bool,
    every_job: bool,
    leave: str | None,
    every: str | None,
    rule: str | None,
    within: str | None,
    parsable: bool,
    test_only: bool,
    as_json: bool,
) -> None:
    """Move JOB, such as lab:17, to a cluster that would end it earlier.

    It ends at its own cluster before another one gets it, so it loses its place in line. Where all
    others refuse it then, it is submitted at its own cluster again. A job that has run moves with
    its checkpoint: both clusters must reach its --checkpoint-dir. One that runs is paused first.
    """
    if (job is not None) + every_job + (leave is not None) != 1:
        raise InvalidRequest("say one: a job such as lab:17, --all, or --leave CLUSTER")
    if job is None and (anyway or parsable or test_only or as_json):
        raise InvalidRequest("--anyway, --parsable, --test-only and --json are for one job")
    if job is not None and every is not None:
        raise InvalidRequest("--every is for --all and --leave")
    with quiet_grpc():
        from dlq_cli.clusters.going import ManyWishes, read_rule, read_within
        from dlq_cli.clusters.moving import move_job
        from dlq_cli.clusters.moving_on import RoundWishes, move_all
    wishes = ManyWishes(
        to=to,
        rule=read_rule(rule),
        within_s=read_within(within),
        request_id="",
        test_only=test_only,
        parsable=parsable,
        as_json=as_json,
    )
    clusters = Clusters(app)
    try:
        if job is None:
            clusters.named(",".join(filter(None, (leave, to if to != "any" else ""))) or to)
            move_all(app, RoundWishes(wishes, leave or ""), _every_s(every))
            return
        cluster, name = parted(app, job)
        if not cluster:
            hint = "dlq clusters"
            raise InvalidRequest("name the job with its cluster, such as lab:17", hint=hint)
        move_job(app, clusters, cluster, name, wishes, anyway=anyway)
    finally:
        clusters.close()


def _every_s(text: str | None) -> float | None:
    seconds = duration_s("--every", text)
    if seconds is not None and seconds < _LEAST_EVERY_S:
        raise InvalidRequest(f"--every is at least {_LEAST_EVERY_S} s", field="every")
    return seconds
