"""The command `dlq-nodeagent`: run, join, maintenance, version."""

import asyncio
import importlib.metadata
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import dump_config, load_config
from dlq_common.errors import ConfigError, InvalidRequest
from dlq_common.ids import RandomIds
from dlq_common.text.addresses import split_addresses
from dlq_common.text.instants import format_instant
from dlq_common.text.units import format_span, parse_duration
from dlq_nodeagent.config import AgentConfig, check_config, check_host
from dlq_nodeagent.daemon import channels_of, prepare_state_dir
from dlq_nodeagent.line.identity import join_any, persist
from dlq_nodeagent.maintenance import Announced, announce, announce_leave
from dlq_nodeagent.serving import TOLD, ServingOrders, begin_anew, fail

USAGE = 2  # an exit code, as that of `dlq`
_CONFIG = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="A TOML file."
)
_STATE_DIR = click.option(
    "--state-dir", type=click.Path(path_type=Path), help="Where the agent keeps its files."
)


class _Told(click.Group):
    """Ends with one line on stderr where the agent's own errors say why."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TOLD as error:
            fail(error)


@click.group(cls=_Told, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlq", prog_name="dlq-nodeagent", message="%(prog)s %(version)s")
def main() -> None:
    """The dlq agent: runs on every GPU host."""


@main.command()
@_CONFIG
@_STATE_DIR
@click.option("--devices", help="nvml, none, or virtual ones by name: fake:8xH100-80GB.")
@click.option(
    "--pool",
    metavar="POOL",
    help="The host's pool: training, inference (jobs only while it is lent), or the pool it is "
    "rented from.",
)
@click.option("--instance", metavar="ID", help="Name of a rented machine at its provider.")
@click.option("--allow-root-jobs", is_flag=True, help="Development only: jobs run as root.")
@click.option(
    "--check-config", "check_only", is_flag=True, help="Print the effective configuration, and end."
)
def run(
    config_path: Path | None,
    state_dir: Path | None,
    devices: str | None,
    pool: str | None,
    instance: str | None,
    allow_root_jobs: bool,
    check_only: bool,
) -> None:
    """Serve the master until SIGTERM. Jobs outlive the agent."""
    config = _config(config_path, state_dir, devices, allow_root_jobs)
    if pool is not None:
        config = replace(config, node=replace(config.node, pool=pool))
    if instance is not None:
        config = replace(config, node=replace(config.node, instance=instance))
    check_config(config)
    if check_only:
        click.echo(dump_config(config), nl=False)
    check_host(config)
    if check_only:
        return
    channels = channels_of(config)
    channels.known()
    begin_anew(ServingOrders(config, channels, _version()))


@main.command(
    "join",
    epilog="\b\nExamples:\n"
    "  dlq-nodeagent join --master head:7321 - < token.txt\n"
    "  dlq-nodeagent join --master head:7321 --name gpu01 -    (then type the token)",
)
@click.argument("token_argument", metavar="[TOKEN]", required=False)
@click.option("--token", "token_option", help="The token, as an option; ps shows it.")
@click.option("--master", help="HOST:PORT of the master's join port.")
@click.option("--name", help="The node's name; the host's name if not given.")
@click.option(
    "--wait",
    metavar="DURATION",
    default="0s",
    help="Keep trying for this time while the master does not answer.",
)
@_CONFIG
@_STATE_DIR
def join_command(
    token_argument: str | None,
    token_option: str | None,
    master: str | None,
    name: str | None,
    wait: str,
    config_path: Path | None,
    state_dir: Path | None,
) -> None:
    """Make this machine a node of the cluster, once; `-` reads the token from stdin."""
    config = _config(config_path, state_dir, None, False)
    token = token_argument or token_option or ""
    token = sys.stdin.readline().strip() if token == "-" else token
    address = master or config.master.join
    if not token or not address:
        raise ConfigError(
            "a token and the master's join address are needed",
            hint="dlq-nodeagent join --master HOST:PORT - < token.txt; or [master] join",
        )
    _check_address(address)
    prepare_state_dir(config.node.state_dir)
    attempt = partial(
        join_any,
        address,
        token,
        wished_node_id=name or config.wished_name,
        state_dir=config.node.state_dir,
    )
    joined = asyncio.run(persist(attempt, _wait_s(wait), SteadyClock()))
    click.echo(f"joined as {joined.node_id}; the master's API is at {joined.api_address}")


def _wait_s(text: str) -> float:
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise ConfigError(f"--wait: {error}") from None


@main.command("maintenance")
@click.option("--for", "span", metavar="DURATION", help="How long the agent may be away: 2h, 90m.")
@click.option("--end", is_flag=True, help="The agent is back; the maintenance is over.")
@_CONFIG
@_STATE_DIR
def maintenance_command(
    span: str | None, end: bool, config_path: Path | None, state_dir: Path | None
) -> None:
    """Before the agent goes down for long: let the jobs of this node go on without it meanwhile.

    Jobs end in silence after their hold (1 h by default). This asks the master for a longer hold,
    waits until every job here has been told, and prints its end. Nothing new starts here until the
    time is over or --end says so.
    """
    try:
        asked_s = _asked_s(span, end)
    except InvalidRequest as error:
        fail(error, code=USAGE)
    config = _config(config_path, state_dir, None, False)
    clock = SteadyClock()
    channels = channels_of(config)
    node_id = channels.known().name
    announced = asyncio.run(announce(channels, clock, RandomIds(clock), asked_s))
    click.echo(f"node {node_id}: {_until(announced, clock.now_s())}")


@main.command("leave")
@click.option(
    "--for",
    "span",
    required=True,
    metavar="DURATION",
    help="Time until the provider takes it back.",
)
@_CONFIG
@_STATE_DIR
def leave_command(span: str, config_path: Path | None, state_dir: Path | None) -> None:
    """Announce that this rented machine's provider takes it back: its jobs save in that time and go
    on elsewhere.
    """
    try:
        leave_s = float(parse_duration(span))
    except ValueError as error:
        fail(InvalidRequest(str(error), field="for"), code=USAGE)
    config = _config(config_path, state_dir, None, False)
    ranks = asyncio.run(announce_leave(channels_of(config), RandomIds(SteadyClock()), leave_s))
    click.echo(f"{ranks} ranks are here")


@main.command()
def version() -> None:
    """The version of dlq."""
    click.echo(_version())


def _config(
    path: Path | None, state_dir: Path | None, devices: str | None, allow_root_jobs: bool
) -> AgentConfig:
    config = load_config(AgentConfig, path)
    # Jobs get paths in it, and begin in directories of their own.
    node = replace(config.node, state_dir=(state_dir or config.node.state_dir).absolute())
    if devices is not None:
        node = replace(node, devices=devices)
    jobs = replace(config.jobs, allow_root=True) if allow_root_jobs else config.jobs
    return replace(config, node=node, jobs=jobs)


def _asked_s(span: str | None, end: bool) -> float:
    if end == (span is not None):
        raise InvalidRequest(
            "say how long the agent will be away, or that it is back",
            field="for",
            hint="dlq-nodeagent maintenance --for 2h, or --end",
        )
    if span is None:
        return 0.0
    try:
        seconds = parse_duration(span)
    except ValueError as error:
        raise InvalidRequest(str(error), field="for") from None
    if not seconds:
        raise InvalidRequest("an absence of no time needs no word", field="for", hint="--for 2h")
    return float(seconds)


def _until(announced: Announced, now_s: float) -> str:
    if not announced.left_s:
        return "no maintenance; its jobs hold out for their ordinary hold"
    here = {0: "no job is here", 1: "1 job is here"}.get(
        announced.rank_count, f"{announced.rank_count} jobs are here"
    )
    if announced.hold_s is not None:
        held = format_span(round(announced.hold_s))
        holds, hold = ("it holds", "") if announced.rank_count == 1 else ("they hold", "at least ")
        here += f", {holds} out {hold}{held} without the agent"
    return (
        f"maintenance until {format_instant(now_s + announced.left_s)}; {here};"
        " nothing new starts until then or `dlq-nodeagent maintenance --end`"
    )


def _check_address(address: str) -> None:
    try:
        split_addresses(address)
    except ValueError as error:
        raise InvalidRequest(str(error), field="master") from None


def _version() -> str:
    return importlib.metadata.version("dlq")
