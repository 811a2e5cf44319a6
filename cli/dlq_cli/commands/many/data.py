"""`dlq data`: declared data of the list, its digest, and staging ahead of a job."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.clusters.listed import Clusters
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import Facts, document
from dlq_cli.output.render import Cell, table
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import InvalidRequest, error_from
from dlq_common.ids import RandomIds

CELLS = (
    Cell("DATA"), Cell("GB", right=True), Cell("DIGEST", drop=1), Cell("LIES AT"),
    Cell("SOURCE", least=12, drop=2),
)  # fmt: skip


@click.group(
    epilog=examples(
        "dlq data list",
        "dlq data describe imagenet /data/imagenet",
        "dlq data stage imagenet --at roof",
    )
)
def data() -> None:
    """Data of your list of clusters: [data.NAME] and [transfer.CLUSTER] in clusters.toml.

    `dlq submit --to any --data NAME` sends a job to a cluster where its data is, or has it staged
    there first.
    """


@data.command(name="list", epilog=examples("dlq data list", "dlq data list --json"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """The data of the list. No cluster is asked."""
    rows: list[Facts] = [
        {
            "name": one.name, "digest": one.digest, "bytes": one.bytes, "source": one.source,
            "at": dict(one.at),
        }
        for one in Clusters(app).data.data.values()
    ]  # fmt: skip
    if as_json:
        click.echo(document({"data": rows}))
        return
    texts = [
        [
            row["name"], f"{row['bytes'] / 1e9:.1f}", row["digest"][:12], ",".join(row["at"]),
            row["source"],
        ]
        for row in rows
    ]  # fmt: skip
    click.echo(table(CELLS, texts, app.look(), headings=bool(texts)), nl=False)


@data.command(epilog=examples("dlq data describe imagenet /data/imagenet --source data1:/imagenet"))
@click.option("--source", default="", metavar="TEXT", help="As rsync names it.  [default: PATH]")
@click.argument("name")
@click.argument("path", type=click.Path(exists=True, file_okay=False, resolve_path=True))
def describe(name: str, path: str, source: str) -> None:
    """Read a directory, and print its table for clusters.toml."""
    from dlq_broker.stage_program import manifest

    try:
        digest, size = manifest(path)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path}: {error}") from None
    click.echo(f'[data.{name}]\ndigest = "sha256:{digest}"\nbytes = {size}')
    click.echo(f'source = "{source or path}"')


@data.command(epilog=examples("dlq data stage imagenet --at roof"))
@click.option("--at", "cluster", required=True, metavar="CLUSTER", help="The cluster of your list.")
@click.argument("names")
@pass_app
def stage(app: App, names: str, cluster: str) -> None:
    """Stage data at a cluster now, as a job; print its global name.

    It stays there for a week at least, until a job has used it.
    """
    with quiet_grpc():
        from dlq.v1 import job_pb2
        from dlq_broker.data_file import named, need_at
        from dlq_broker.doors import Accepted, Declined
        from dlq_broker.over_wire import WireCluster
        from dlq_broker.staging_door import staging_spec, unstageable

    clusters = Clusters(app)
    clusters.named(cluster)
    wanted = named(clusters.data, names)
    need = need_at(clusters.data, {one.variable: f"sha256:{one.digest}" for one in wanted}, cluster)
    if need is None or not need.missing:
        raise InvalidRequest(f"{names}: lies at {cluster} already, by the list")
    if why := unstageable(need, cluster):
        raise InvalidRequest(why)
    key = RandomIds(app.clock).request_id()
    there = clusters.app(cluster)
    door = WireCluster(cluster, "", there.connection, app.clock.now_s())
    spec = job_pb2.JobSpec(working_directory="/").SerializeToString()
    try:
        answer = door.submit(staging_spec(spec, need, key), key)
    finally:
        clusters.close()
    if isinstance(answer, Accepted):
        click.echo(f"{cluster}:{answer.job}")
        return
    raise error_from(
        answer.reason if isinstance(answer, Declined) else "UNAVAILABLE", answer.why, {}
    )
