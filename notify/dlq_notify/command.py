"""The command `dlq-notify`: run, and the list of messages that did not arrive."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import click

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import dump_config, load_config
from dlq_common.daemon.logs import configure_logging
from dlq_common.daemon.pinned import pin
from dlq_common.daemon.systemd import Service
from dlq_common.errors import ConfigError, DlqError
from dlq_common.ids import RandomIds
from dlq_common.text.instants import format_instant
from dlq_notify.config import NotifyConfig, check_config
from dlq_notify.daemon import NotifyDaemon
from dlq_notify.letters import counted
from dlq_notify.line import NotifierLine
from dlq_notify.sending import Sending, Sends
from dlq_notify.store import WAITING, NotifyLetter, NotifyStore
from dlq_notify.targets.chat import Chat
from dlq_notify.targets.guarded import GuardedCaller
from dlq_notify.targets.mail import Mail
from dlq_notify.targets.webhook import Webhook

DATABASE = "notify.db"
_CONFIG = click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="A TOML file."
)


class _Told(click.Group):
    """Ends with words on stderr where our own errors say why."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (DlqError, sqlite3.Error, OSError) as error:
            click.echo(f"dlq-notify: {error}", err=True)  # our own have their hint in it
            ctx.exit(1)


@click.group(cls=_Told, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlq", prog_name="dlq-notify", message="%(prog)s %(version)s")
def main() -> None:
    """The dlq notifier: tells users what happens to their jobs, by their rules."""


@main.command()
@_CONFIG
@click.option(
    "--check-config", "check_only", is_flag=True, help="Print the effective configuration, and end."
)
def run(config_path: Path | None, check_only: bool) -> None:
    """Follow the master's events and send messages until SIGTERM."""
    config = _config(config_path)
    if check_only:
        click.echo(dump_config(config), nl=False)
        return
    pin()
    clock, state_dir = SteadyClock(), config.notify.state_dir
    configure_logging(clock, level=config.log.level)
    _prepare(state_dir)
    with ExitStack() as parts:
        parts.enter_context(_sole_daemon(state_dir))
        line = NotifierLine(state_dir / "identity", config.notify.login_socket, clock)
        parts.enter_context(closing(line))
        store = parts.enter_context(closing(NotifyStore(state_dir / DATABASE)))
        caller = GuardedCaller(config.web)
        chat = Chat(caller)
        targets: dict[str, Sends] = {
            "mail": Mail(config.mail, clock), "webhook": Webhook(caller, clock),
            "slack": chat, "mattermost": chat, "teams": chat,
        }  # fmt: skip
        sending = Sending(
            store, config.notify, targets, clock, RandomIds(clock).rng(), line.cluster, line.output
        )
        daemon = NotifyDaemon(config, store, line, sending, clock, Service.of(os.environ, clock))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        daemon.run()


@main.group()
def dead() -> None:
    """Messages that did not arrive within a day, or that their targets refused."""


@dead.command(name="list")
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_(config_path: Path | None, as_json: bool) -> None:
    """List them, with the last fault. No line shows an address."""
    with closing(_store(config_path)) as store:
        letters = store.dead_letters()
    if as_json:
        click.echo(json.dumps({"letters": [_facts(one) for one in letters]}, indent=2))
        return
    for one in letters:
        click.echo(
            f"{one.letter_id}  {one.user}  {format_instant(one.made_s)}  tries {one.tries}  "
            f"{one.fault}  ({counted(one.counts)})"
        )


@dead.command()
@_CONFIG
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.argument("letter_id", nargs=-1, metavar="[MESSAGE]...")
def retry(config_path: Path | None, every: bool, letter_id: tuple[str, ...]) -> None:
    """Send MESSAGE... again, for up to a day. The daemon that runs takes them up at once."""
    if every == bool(letter_id):
        raise ConfigError("name messages, or --all", hint="dlq-notify dead list")
    now_s = SteadyClock().now_s()
    with closing(_store(config_path)) as store:
        there = {one.letter_id: one for one in store.dead_letters()}
        wanted = list(there) if every else list(letter_id)
        for name in wanted:
            if name not in there:
                raise ConfigError(f"there is no dead message {name}", hint="dlq-notify dead list")
        with store.write():
            for name in wanted:
                again = there[name]._replace(state=WAITING, made_s=now_s, next_s=now_s, tries=0)
                store.put_letter(again)
    click.echo(f"{len(wanted)} to be sent again")


# --- helpers, in order of use ---------------------------------------------------------------------


def _config(path: Path | None) -> NotifyConfig:
    config = load_config(NotifyConfig, path)
    check_config(config)
    return config


def _prepare(state_dir: Path) -> None:
    """The directory holds secrets: of the rules, and the key of the certificate."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if state_dir.stat().st_mode & 0o077:
        raise ConfigError(
            f"{state_dir}: other users may look into it", hint=f"chmod 700 {state_dir}"
        )


@contextmanager
def _sole_daemon(state_dir: Path) -> Iterator[None]:
    """Two daemons over one database would send each message twice. The kernel takes the lock back
    however the process ends.
    """
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another dlq-notify runs in {state_dir}") from None
        yield
    finally:
        os.close(descriptor)


def _store(path: Path | None) -> NotifyStore:
    database = _config(path).notify.state_dir / DATABASE
    if not database.exists():
        raise ConfigError(f"{database} does not exist", hint="has dlq-notify run here?")
    return NotifyStore(database)


def _facts(letter: NotifyLetter) -> dict[str, object]:
    return {
        "message_id": letter.letter_id,
        "rule_id": letter.rule_id,
        "user": letter.user,
        "made_time": format_instant(letter.made_s),
        "tries": letter.tries,
        "fault": letter.fault,
        "counts": letter.counts,
    }
