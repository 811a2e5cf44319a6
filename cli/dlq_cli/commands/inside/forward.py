"""`dlq forward`: ports of a job on this host's loopback."""

from __future__ import annotations

import re

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.inside.exec import running_job
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.lists.select import one_job
from dlq_client.inside.forward import LOOPBACK, Forward
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest

_PORTS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_MOST_PORTS = 16


@click.command(
    epilog=examples(
        "dlq forward 17 8888",
        "dlq forward 17 8888:9999 6006",
        "dlq forward --rank 3 17 29400:0",
    )
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("-v", "--verbose", is_flag=True, help="Say which way the bytes go.")
@click.argument("job")
@click.argument("ports", nargs=-1, required=True, metavar="PORT[:LOCAL]...")
@pass_app
def forward(app: App, job: str, ports: tuple[str, ...], rank: int, verbose: bool) -> None:
    """Serve PORT of JOB at LOCAL of this host (127.0.0.1), until Ctrl-C or the job's end.

    LOCAL is PORT where it is left out, and 0 is any free one. A program of the job must listen on
    PORT, on loopback or on all addresses. Ports of other programs on that node are refused. No port
    is opened on the node.

    The bytes go through the relay beside the master, or through the master where that is not
    reached.

    A cut line is taken up again within 35 seconds, and its connections go on. After that, or when
    the agent restarts, this ends with exit code 69.
    """
    pairs = [_pair(each) for each in ports]
    if len(pairs) > _MOST_PORTS:
        raise InvalidRequest(f"at most {_MOST_PORTS} ports in one call")
    job_id = running_job(app, one_job(Jobs(app.connection()), job))
    tell_more = app.say if verbose else _say_nothing
    line = Forward(app.connection(), job_id, node_rank=rank, tell=app.say, tell_more=tell_more)
    try:
        served = [(line.listen(port, local), port) for port, local in pairs]

        def ready() -> None:
            for local, port in served:
                click.echo(f"{LOOPBACK}:{local} -> port {port} of job {job_id}")

        line.serve(ready)
    except KeyboardInterrupt:
        raise exit_codes.Ended(exit_codes.INTERRUPTED) from None
    finally:
        line.close()


def _say_nothing(_words: str) -> None:
    """Nobody asked."""


def _pair(text: str) -> tuple[int, int]:
    found = _PORTS.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{text!r} is no port", hint="write 8888, or 8888:9999")
    port = int(found[1])
    local = port if found[2] is None else int(found[2])
    if not 1 <= port <= 65_535 or local > 65_535:
        raise InvalidRequest(f"{text!r}: ports are 1 to 65535")
    return port, local
