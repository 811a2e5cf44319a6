"""`dlq doctor`: parts that work here, parts that fail, and advice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.doctor import client, host, nvidia
from dlq_cli.doctor.verdict import CheckVerdict, ClientHealth, skip
from dlq_cli.output.render import OutputLook, clean_line, paint
from dlq_common.errors import DlqError

if TYPE_CHECKING:
    from dlq_client.line.identity import Identity

# The state words that lend their colours to the verdicts.
_LIKE = {
    ClientHealth.OK: "up",
    ClientHealth.SKIP: "skip",
    ClientHealth.WARN: "held",
    ClientHealth.FAIL: "failed",
}
_NOWHERE = Path("/nonexistent")


@click.command(
    epilog=examples(
        "dlq doctor",
        "dlq doctor --node",
        "dlq doctor --json | jq '.verdicts[] | select(.health == \"fail\")'",
    )
)
@click.option(
    "--node/--no-node",
    default=None,
    help="Check an agent's needs on this host, too.  [default: this client alone]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The agent's configuration.  [default: /etc/dlq/nodeagent.toml]",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The agent's state directory.  [default: as configured]",
)
@json_option
@pass_app
def doctor(
    app: App, node: bool | None, config: Path | None, state_dir: Path | None, as_json: bool
) -> None:
    """Check this client, the way to the master and, on a GPU host, the parts that an agent needs.

    It changes nothing. Each line says ok, warn, fail or skip, and names the finding; below it
    stands the advice. Exits with 1 when something fails.
    """
    machine = host.Host()
    look = _look(app)
    if node is None and (config or state_dir):
        node = True
    verdicts: list[CheckVerdict] = []
    for verdict in chain(_client(app), node_verdicts(machine, node, config, state_dir)):
        verdicts.append(verdict)
        if not as_json:
            click.echo(_text(verdict, look), color=look.color)
    counts = {health: sum(each.health is health for each in verdicts) for health in ClientHealth}
    if as_json:
        _json(verdicts, counts)
    else:
        told = (
            f"{counts[ClientHealth.FAIL]} fail, {counts[ClientHealth.WARN]} warn, "
            f"{counts[ClientHealth.OK]} ok"
        )
        click.echo(told)
    if counts[ClientHealth.FAIL]:
        raise exit_codes.Ended(exit_codes.FAILURE)


def _client(app: App) -> Iterator[CheckVerdict]:
    yield client.program(shutil.which)
    settings = client.settings(app.settings)
    yield settings
    broken = settings.health is ClientHealth.FAIL
    broker = _NOWHERE if broken else Path(app.settings.get("login_socket").value)
    told, identity = client.credentials(app.home, broker, app.clock.now_s())
    yield told
    if identity is None:
        yield from (skip(name, "nobody is logged in") for name in ("network", "master", "clock"))
    else:
        yield from _line(app, identity)
    yield client.completion(os.environ, Path("~").expanduser())


def _line(app: App, identity: Identity) -> Iterator[CheckVerdict]:
    """The way to the master, and the master's answer."""
    network = client.reach(identity)
    yield network
    if network.health is ClientHealth.FAIL:
        yield from (skip(name, "the network comes first") for name in ("master", "clock"))
        return
    told, answer, middle_s = client.master(identity, app.clock)
    yield told
    if answer is None:
        yield skip("clock", "the master does not answer")
        return
    yield client.versions(answer)
    yield client.clocks(answer, middle_s)
    yield from client.helpers(answer, _look(app))
    yield from client.incidents(answer, middle_s)


def node_verdicts(
    machine: host.Host, node: bool | None, config: Path | None, state_dir: Path | None
) -> Iterator[CheckVerdict]:
    """The needs of an agent, checked only on request: an agent on this host does not make a client
    ill.
    """
    if node is None and host.looks_like_a_node(machine):
        yield skip("node", "an agent is set up here; its account or root can look: --node")
    elif node:
        yield from _needs_of_an_agent(machine, host.wish_of(machine, config, state_dir))


def _needs_of_an_agent(machine: host.Host, wish: host.HostWish) -> Iterator[CheckVerdict]:
    yield host.agent(machine, wish)
    shim = host.shim()
    yield shim
    yield host.compiler(machine)
    podman = host.podman(machine)
    yield podman
    yield host.runtimes(shim, podman)
    yield host.cgroups(machine)
    yield nvidia.nvml(wish)
    yield nvidia.cdi(machine, wish)
    yield host.disk(machine, wish)
    yield host.files()
    yield host.users_map(machine, wish)


def _look(app: App) -> OutputLook:
    """Plain, where the settings cannot be read: that is one of the verdicts."""
    try:
        return app.look()
    except DlqError:
        return OutputLook(tty=False, color=False, now_s=0.0)


def _text(verdict: CheckVerdict, look: OutputLook) -> str:
    word = paint(_LIKE[verdict.health], look, f"{verdict.health:<5}")
    line = f"{word} {verdict.check:<12} {clean_line(verdict.found)}"
    return f"{line}\n{'':<19}-> {clean_line(verdict.todo)}" if verdict.todo else line


def _json(verdicts: list[CheckVerdict], counts: dict[ClientHealth, int]) -> None:
    from dlq_cli.facts.common import document

    click.echo(
        document(
            {
                "verdicts": [
                    {
                        "check": verdict.check.lower().replace(" ", "_"),
                        "health": verdict.health.value,
                        "found": verdict.found,
                        "todo": verdict.todo or None,
                    }
                    for verdict in verdicts
                ],
                **{f"{health}_count": count for health, count in counts.items()},
            }
        )
    )
