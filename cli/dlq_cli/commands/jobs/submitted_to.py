"""`dlq submit --to`: the job of a command line to one of several clusters."""

from __future__ import annotations

from typing import NamedTuple

from dlq_cli.app import App
from dlq_cli.clusters.going import ManyWishes, submit_to
from dlq_cli.clusters.listed import Clusters
from dlq_cli.commands.jobs.submitted import Manner, stay
from dlq_cli.lists.select import several_jobs
from dlq_cli.output.zone import LocalZone
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.slurm.request import ALL_MEMORY, WHOLE
from dlq_cli.spec.validate import Spec
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest


class DataWish(NamedTuple):
    """The names of data that the job reads, "" = none; and whether it goes only where that is."""

    names: str = ""
    only_there: bool = False


def submit_spec_to(
    app: App, spec: Spec, wishes: ManyWishes, data: DataWish, *, wait: bool, follow: bool
) -> None:
    """Hand a spec over, and stay with its job if that is wished."""
    if (origin := spec.origins.get("nodes")) in (WHOLE, ALL_MEMORY):
        what = "--exclusive" if origin == WHOLE else "--mem=0"
        raise InvalidRequest(f"{what} takes nodes of one cluster, and --to asks several")
    message = to_message(spec)
    put_instants(message, spec, now_s=app.clock.now_s(), zone=LocalZone())
    clusters = Clusters(app)
    if data.names:
        from dlq_broker.data_file import named

        if message.dependency.any:
            raise InvalidRequest("--data needs all dependencies, and these are alternatives")
        for one in named(clusters.data, data.names):
            message.environment[one.variable] = f"sha256:{one.digest}"
        clusters.only_there = data.only_there
    try:
        hand = submit_to(app, clusters, message, wishes)
        if hand is None or not (wait or follow):
            return
        there = clusters.app(hand.cluster)
        job_ids = several_jobs(Jobs(there.connection()), [hand.job])
        manner = Manner(parsable=False, as_json=False, wait=wait, follow=follow)
        stay(there, job_ids, manner)
    finally:
        clusters.close()
