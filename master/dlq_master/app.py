"""`dlq-master`: the command, what it asks of a configuration, and how it fails."""

import gc
import logging
import math
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import click

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import dump_config, load_config
from dlq_common.daemon.logs import LEVELS, configure_logging, for_journal, get_logger
from dlq_common.errors import ConfigError, DlqError
from dlq_common.identity.acting import LONGEST_GROUP, is_group
from dlq_common.identity.facts import LIFETIME_S
from dlq_common.identity.private_files import read_private
from dlq_common.text.addresses import is_loopback, split_address
from dlq_common.text.instants import format_instant
from dlq_common.text.names import check_word
from dlq_common.text.units import MINUTE, approximate_span
from dlq_master.ca_commands import ca
from dlq_master.control.config import CLOSED, OPEN, OTHERS, POSTGRESQL, SQLITE, MasterConfig
from dlq_master.control.loans.load_sources import check_source
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.people.people import ROLE_ORDER
from dlq_master.control.placement.policies import policy_of
from dlq_master.control.pool_config import check_pools
from dlq_master.databases import (
    audit_key,
    check_leader,
    check_store,
    early_check,
    need_sqlite,
    path_of,
    place_of,
    stored_meta,
)
from dlq_master.founding import Charter, caller_name, found
from dlq_master.model.jobs.job import RestartLimits
from dlq_master.model.nodes.gpu_health import actions_of
from dlq_master.pair_commands import pair
from dlq_master.rpc.metrics.token_file import token_file_of
from dlq_master.safekeeping import Copies, copy_master, run_hook
from dlq_master.safekeeping import check as check_backup
from dlq_master.shipping_commands import receive_shipped, recover_shipped, show_shipping
from dlq_master.store.port import CommitFailed

DEFAULT_CONFIG = Path("/etc/dlq/master.toml")
# Agents need two files each; less than this is no cluster at all.
FEWEST_FILES = 256
LONGEST_WINDOW_S = 3600.0
CONFIG = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="master.toml",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlq", prog_name="dlq-master", message="%(prog)s %(version)s")
def main() -> None:
    """The master of a dlq cluster: queues, leases, identities.

    \b
    Examples:
      dlq-master init --state-dir /var/lib/dlq --cluster lab --config /etc/dlq/master.toml
      dlq-master run --config /etc/dlq/master.toml --check-config
      dlq-master run --config /etc/dlq/master.toml
    """


main.add_command(ca)
main.add_command(pair)


@main.command(name="version")
def show_version() -> None:
    """Print the version."""
    click.echo(f"dlq-master {version('dlq')}")


@main.command()
@click.option("--state-dir", type=click.Path(path_type=Path), required=True, help="database and CA")
@click.option("--cluster", required=True, help="name of the cluster, in every certificate")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=None,
    help="where to write master.toml  [default: STATE_DIR/master.toml]",
)
@click.option("--listen", default="127.0.0.1:7320", show_default=True, help="the API (mutual TLS)")
@click.option("--join-listen", default="127.0.0.1:7321", show_default=True, help="the join port")
@click.option(
    "--checkpoint-root",
    type=click.Path(path_type=Path),
    default=None,
    help="shared by all nodes  [default: STATE_DIR/checkpoints]",
)
@click.option("--advertise", default="", help="HOST:PORT that others dial, when not --listen")
@click.option(
    "--login-socket",
    type=click.Path(path_type=Path),
    default=None,
    help="socket of the login broker  [default: STATE_DIR/login.sock]",
)
@click.option(
    "--owner", default="", help="the account dlq-master will run as, when it is not yours"
)
def init(
    state_dir: Path,
    cluster: str,
    config_path: Path | None,
    listen: str,
    join_listen: str,
    checkpoint_root: Path | None,
    advertise: str,
    login_socket: Path | None,
    owner: str,
) -> None:
    """Make a new cluster: its CA, an empty database, a first admin (you) and master.toml.

    \b
    Example:
      dlq-master init --state-dir /var/lib/dlq --cluster lab
    """
    state_dir = state_dir.absolute()
    charter = Charter(
        cluster=cluster,
        state_dir=state_dir,
        config_path=(config_path or state_dir / "master.toml").absolute(),
        checkpoint_root=(checkpoint_root or state_dir / "checkpoints").absolute(),
        listen=listen,
        join_listen=join_listen,
        advertise=advertise,
        login_socket=login_socket,
        owner=owner,
    )
    with _failing(DlqError, OSError, ValueError):
        admin = found(charter, SteadyClock().now_s())
    click.echo(f"cluster {cluster} made in {state_dir}; first admin: {admin.name}")
    click.echo(f"checkpoints of jobs: {charter.checkpoint_root} (every node must have it)")
    if os.geteuid() == 0 and not charter.checkpoint_root.stat().st_mode & 0o022:
        click.echo(
            f"{charter.checkpoint_root} was there, and users may make no directory in it: their "
            "jobs cannot start. chmod 1777 makes it as /tmp is",
            err=True,
        )
    click.echo(f"start it: dlq-master run --config {charter.config_path}")
    click.echo(f"then log in: dlq login --socket {login_socket or state_dir / 'login.sock'}")


@main.command()
@CONFIG
@click.option("--check-config", is_flag=True, help="print the effective configuration and leave")
@click.option("--log-level", type=click.Choice(LEVELS), default=None, help="overrides log.level")
def run(config_path: Path, check_config: bool, log_level: str | None) -> None:
    """Serve until SIGTERM or SIGINT. Jobs never notice that the master stops or starts.

    \b
    Example:
      dlq-master run --config /etc/dlq/master.toml
    """
    with _failing(DlqError):
        config = load_config(MasterConfig, config_path)
        _checked(config)
    if check_config:
        click.echo(dump_config(config), nl=False)
        return
    # The C core of gRPC reads it when it is imported, and writes lines of its own form otherwise.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    early = early_check(config)
    gc.disable()  # nothing that is imported goes; serving enables it
    from dlq_master.serving import serve_until_stopped

    configure_logging(SteadyClock(), level=log_level or config.log.level, behind=True)
    try:
        _check_files()
        serve_until_stopped(config, early)
    except CommitFailed as error:
        # Nothing that was not on disk has been told; the next start begins from there.
        get_logger("master").error("commit_failed", error=error.what)
        sys.exit(1)
    except (DlqError, OSError) as error:
        _fail(error)


@main.command("backup")
@CONFIG
@click.option(
    "--to", "target", type=click.Path(path_type=Path), required=True, help="directory of the copies"
)
@click.option(
    "--keep", type=click.IntRange(min=0), default=14, show_default=True, help="copies; 0 = all"
)
def back_up(config_path: Path, target: Path, keep: int) -> None:
    """Copy the whole master (database, CA, configuration) into a new directory below --to.

    The master may serve meanwhile. A copy is as secret as the CA's key, unless [backup] ca_key says
    otherwise. Afterwards the program of [backup] hook is given the copy, to take it to another
    host.

    \b
    Example:
      dlq-master backup --to /var/backups/dlq
    """
    with _failing(DlqError):
        config = load_config(MasterConfig, config_path)
        need_sqlite(config, "dlq-master backup")
        copies = Copies(
            state_dir=config.cluster.state_dir,
            config_path=config_path,
            target=target,
            keep=keep,
            settings=config.backup,
        )
        check_backup(config.backup)
        made = copy_master(copies, SteadyClock().now_s())
        click.echo(f"backup made: {made}")
        run_hook(copies, made)


@main.command("restore")
@click.argument("copy", metavar="DIR", type=click.Path(path_type=Path, exists=True))
@CONFIG
@click.option("--replace", is_flag=True, help="set the existing database aside")
@click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, exists=True),
    default=None,
    help="passphrase of the CA's key, if the copy has it encrypted",
)
@click.option(
    "--ca-key",
    type=click.Path(path_type=Path, exists=True),
    default=None,
    help="the CA's key, if it is kept apart from copies",
)
def restore_copy(
    copy: Path,
    config_path: Path,
    replace: bool,
    passphrase_file: Path | None,
    ca_key: Path | None,
) -> None:
    """Put a copy that `dlq-master backup` made into the state directory. The master must not run.

    DIR is a copy, or the directory with all copies: then the newest is taken. The copy is checked
    before anything is changed. The existing files are set aside, not deleted. The audit goes on
    where it was.

    \b
    Example:
      dlq-master restore /var/backups/dlq --replace
    """
    from dlq_master.restoring import Restore, check_config, restore

    with _failing(DlqError, OSError):
        check_config(config_path, copy)
        config = load_config(MasterConfig, config_path)
        need_sqlite(config, "dlq-master restore")
        wanted = Restore(
            copy=copy,
            state_dir=config.cluster.state_dir,
            cluster=config.cluster.name,
            replace=replace,
            passphrase=read_private(passphrase_file).strip() if passphrase_file else None,
            ca_key=ca_key,
            by=caller_name(),
        )
        said = restore(wanted, SteadyClock().now_s())
    for line in said:
        click.echo(line)
    click.echo("start the master; then compare `dlq status` with what users know of the time since")


@main.command("reset-clock")
@CONFIG
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def reset_clock_(config_path: Path, yes: bool) -> None:
    """Say that this host's clock is right, where a stopped master's database contradicts it.

    A master that ran while the clock was ahead stored instants of the future, and none starts below
    them. They are taken back to the present, in one transaction; make a backup first.

    \b
    Example:
      dlq-master reset-clock --config /etc/dlq/master.toml
    """
    from dlq_master.start_clock import MOST_APART_S
    from dlq_master.store.sqlite.clock_reset import reset_clock

    now_s = SteadyClock().now_s()
    if not yes:
        click.confirm(f"This host's clock says {format_instant(now_s)}. Is that right?", abort=True)
    with _failing(DlqError, OSError):
        config = load_config(MasterConfig, config_path)
        need_sqlite(config, "dlq-master reset-clock")
        database = path_of(config)
        slot_s, actor = config.lease.terms().slo_term_s, caller_name()
        done = reset_clock(database, now_s, MOST_APART_S, slot_s, actor)
    if done.shift_s:
        back, since = approximate_span(done.shift_s), format_instant(done.since_s)
        click.echo(
            f"what was stored since {since} went back by {back} ({done.journal_rows} events)"
        )
    click.echo(f"the clock is taken as right; the next master goes on at {format_instant(now_s)}")


@main.command("copy-store")
@CONFIG
@click.option("--to", "target", type=click.Choice((SQLITE, POSTGRESQL)), required=True)
def copy_store(config_path: Path, target: str) -> None:
    """Move the rows of a stopped master to PostgreSQL, or back to SQLite.

    The server and its database are those of [store]. Every row is compared afterwards. The place
    that the cluster leaves is set aside. Then set [store] backend to the new place.

    \b
    Example:
      dlq-master copy-store --to postgresql --config /etc/dlq/master.toml
    """
    with _failing(DlqError, OSError):
        config = load_config(MasterConfig, config_path)
        path, place = path_of(config), place_of(config)
        from dlq_master.store.copying import to_postgres, to_sqlite

        moved = to_postgres(path, place) if target == POSTGRESQL else to_sqlite(place, path)
    click.echo(f"{sum(moved.values())} rows of {len(moved)} tables moved to {target}, and compared")
    click.echo(f'now set [store] backend = "{target}" in {config_path}, and start the master')


@main.command("verify-audit")
@CONFIG
def verify_audit(config_path: Path) -> None:
    """Say whether a line of the audit was changed, taken out or lost; exits with 1 then.

    The database knows the number and the hash of the last line, so that a file that is shorter, or
    gone, is an error. A line that a crash cut short does not count: the next start of the master
    heals it.

    \b
    Example:
      dlq-master verify-audit --config /etc/dlq/master.toml
    """
    from dlq_master.rpc.audit.chain import Head
    from dlq_master.rpc.audit.verify import verify_all

    with _failing(DlqError, OSError):
        config = load_config(MasterConfig, config_path)
        known = Head.read(stored_meta(config, audit_key(config)))
        verdict = verify_all(config.cluster.state_dir / "audit.jsonl", known)
    for broken in verdict.broken:
        where = f"{broken.file}:{broken.line}" if broken.line else broken.file
        click.echo(f"{where}: {broken.what}", err=True)
    if verdict.torn:
        click.echo("the last line is not finished; a start of the master heals it", err=True)
    before = f", after {verdict.missing} that are elsewhere" if verdict.missing else ""
    click.echo(f"{verdict.lines} lines{before}; {len(verdict.broken)} broken")
    if verdict.broken:
        sys.exit(1)


for _command in (recover_shipped, receive_shipped, show_shipping):
    main.add_command(_command)


# The limits of single values: the key, whether its value will do, and the words that refuse it.
_LIMITS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("health.closed_share", lambda it: 0 <= it <= 1, "is between 0 and 1"),
    ("twin.cpu_seconds", lambda it: it > 0, "is above 0"),
    ("twin.cpu_share", lambda it: 0 < it <= 1, "is above 0, up to 1"),
)
_MORE_LIMITS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("scheduler.cores_per_gpu", lambda it: it > 0, "is above 0"),
    ("jobs.port_first", lambda it: 1 <= it <= 65535, "is a port, from 1 to 65535"),
    ("jobs.port_last", lambda it: 1 <= it <= 65535, "is a port, from 1 to 65535"),
    ("jobs.checkpoint_root", lambda it: it.is_absolute(), "is an absolute path"),
    ("jobs.attend_silence", lambda it: it >= 1.0, "must be at least 1s"),
    ("jobs.queued_per_user", lambda it: it >= 1, "must be at least 1"),
    ("jobs.submit_burst", lambda it: it >= 1, "must be at least 1"),
    ("retention.journal_most", lambda it: it >= 1, "must be at least 1"),
    ("jobs.submit_rate", lambda it: 0.0 < it < math.inf, "must be above 0"),
    ("retention.compact_every", lambda it: it >= 1.0, "must be at least 1s"),
    ("retention.ended_most", lambda it: it >= 0, "is negative"),
    ("profiler.mode", lambda it: it in ("auto", "asked", "off"), "is auto, asked or off"),
    ("profiler.window", lambda it: 1.0 <= it <= LONGEST_WINDOW_S, "is between 1s and 1h"),
    ("profiler.link_gbits", lambda it: 0.0 <= it < math.inf, "is 0 or more"),
    (
        "identity.web_may_act_for",
        lambda it: set(it) <= set(ROLE_ORDER),
        f"names roles of {', '.join(ROLE_ORDER)}",
    ),
    (
        "identity.web_certificates",
        lambda it: it == 0 or MINUTE <= it <= LIFETIME_S / 2,
        "is 0s, or from 1m to 15d",
    ),
    (
        "identity.web_address",
        lambda it: not it or it.startswith("https://"),
        "begins with https://",
    ),
    ("visibility.others", lambda it: it in OTHERS, f"is one of {', '.join(OTHERS)}"),
    ("loans.headroom", lambda it: 0 <= it < 1, "is from 0 to below 1"),
    ("shipping.every", lambda it: it >= 0.05, "must be at least 50ms"),
    ("shipping.snapshot_every", lambda it: it >= 1.0, "must be at least 1s"),
    ("loans.every", lambda it: it >= 1.0, "must be at least 1s"),
    *(
        (f"hooks.{hook}", lambda it: it in ("", CLOSED, OPEN), 'is "closed", "open" or ""')
        for hook in ("on_submit", "on_start", "on_end")
    ),
    ("hooks.time_limit", lambda it: 0.01 <= it <= MINUTE, "is from 10ms to 1m"),
    ("hooks.memory", lambda it: it >= 64 << 20, "is at least 64MiB"),
    ("hooks.waiting", lambda it: it >= 1, "must be at least 1"),
    ("hooks.file", lambda it: not it or it.startswith("/"), "is an absolute path"),
    ("loans.within", lambda it: not 0 < it < 1.0, "is 0 or at least 1s"),
)


def _check_pool_speeds(config: MasterConfig) -> None:
    """A type has one speed."""
    speeds = config.type_speeds()
    for number, pool in enumerate(config.pools):
        declared = speeds.of(pool.gpu_type)
        if pool.speed not in (None, declared) and speeds.names(pool.gpu_type):
            key = f"pools[{number}].speed"
            told = f"[gpu_types] says {declared:g} for {pool.gpu_type}: leave it out"
            raise ConfigError(f"{key}: {told}", key=key)


def _check_groups(config: MasterConfig) -> None:
    """A group of an issuer gives a role for which the web server may act, or a team."""
    identity = config.identity
    for group, role in identity.group_roles.items():
        if role not in identity.web_may_act_for:
            key = f"identity.group_roles.{group}"
            raise ConfigError(f"{key}: web_may_act_for does not name the role {role}", key=key)
    for group, team in identity.group_teams.items():
        with _naming(f"identity.group_teams.{group}"):
            check_word(team, "team")
    for group in (*identity.group_roles, *identity.group_teams):
        if not is_group(group):
            told = f"{group[:LONGEST_GROUP]!r} is no name of a group"
            raise ConfigError(f"identity: {told}", key="identity")


def _checked(config: MasterConfig) -> None:
    """Everything about a configuration that can be known to be wrong without serving."""
    config.lease.terms()
    config.jobs.limited(RestartLimits())
    _check_pool_speeds(config)
    with _naming("health.actions"):
        actions_of(config.health.actions)
    _check_limits(config, _LIMITS)
    names = [queue.name for queue in config.queues]
    if len(set(names)) != len(names):
        raise ConfigError("queues: two queues have the same name")
    if config.jobs.default_queue not in names:
        raise ConfigError(f"jobs.default_queue: there is no queue {config.jobs.default_queue!r}")
    _check_addresses(config)
    if config.jobs.port_first > config.jobs.port_last:
        raise ConfigError("jobs.port_first is above jobs.port_last")
    if config.jobs.concurrent_saves < 1:
        raise ConfigError("jobs.concurrent_saves must be at least 1")
    for queue in config.queues:
        for key in ("jobs", "jobs_per_user"):
            if (most := getattr(queue, key)) is not None and most < 0:
                raise ConfigError(f"queues: {key} of {queue.name} is negative", key="queues")
    _check_limits(config, _MORE_LIMITS)
    _check_interactive(config)
    _check_groups(config)
    config.checks.check()
    config.first_step_rule()
    config.straggler.rule()
    with _naming("loans.load"):
        check_source(config.loans.load)
    check_pools(config.pools, config.renting)
    check_backup(config.backup)
    _check_shipping(config)
    check_store(config)
    check_leader(config)
    Failpoints(config.debug.failpoint)
    policy_of(config)


def _check_interactive(config: MasterConfig) -> None:
    """ConfigError for limits of interactive jobs that cannot be meant."""
    asked, key = config.interactive, "interactive"
    if asked.queue and asked.queue not in [queue.name for queue in config.queues]:
        raise ConfigError(f"{key}.queue: there is no queue {asked.queue!r}", key=f"{key}.queue")
    if asked.floor and not asked.queue:
        raise ConfigError(f"{key}.floor: interactive.queue names no queue", key=f"{key}.floor")
    if asked.floor < 0.0 or (asked.floor >= 1.0 and asked.floor != int(asked.floor)):
        what = f"{key}.floor: {asked.floor:g} is neither whole GPUs nor a share below 1"
        raise ConfigError(what, key=f"{key}.floor")
    if not 0.0 < asked.time_limit <= asked.max_time:
        what = f"{key}.time_limit is above 0s, and no longer than max_time"
        raise ConfigError(what, key=f"{key}.time_limit")
    config.idle_rules()
    for name in ("gpus_per_job", "gpus_per_user"):
        if (most := getattr(asked, name)) is not None and most < 0:
            raise ConfigError(f"{key}.{name} is negative", key=f"{key}.{name}")


def _check_shipping(config: MasterConfig) -> None:
    """ConfigError for a shipping that cannot work, or would let the CA's key out in clear."""
    shipping = config.shipping
    if shipping.directory and shipping.command:
        raise ConfigError("shipping has a directory or a command, not both", key="shipping.command")
    if shipping.directory and not Path(shipping.directory).is_absolute():
        raise ConfigError("shipping.directory is an absolute path", key="shipping.directory")
    if shipping.is_on and config.backup.ca_key == "clear":
        raise ConfigError(
            'shipping takes the master elsewhere, and backup.ca_key is "clear"',
            hint='set backup.ca_key to "encrypted" or "apart"',
            key="backup.ca_key",
        )


def _check_limits(
    config: MasterConfig, limits: Iterable[tuple[str, Callable[[Any], bool], str]]
) -> None:
    for key, holds, words in limits:
        if not holds(attrgetter(key)(config)):
            raise ConfigError(f"{key} {words}", key=key)


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """A ValueError becomes the ConfigError of this key."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{key}: {error}", key=key) from None


def _check_addresses(config: MasterConfig) -> None:
    listen = config.listen
    for key, address in (
        ("listen.api", listen.api),
        ("listen.join", listen.join),
        ("listen.advertise", listen.advertise or listen.api),
        ("relay.listen", listen.api if config.relay.listen in ("", "off") else config.relay.listen),
        ("relay.advertise", config.relay.advertise or listen.api),
    ):
        with _naming(key):
            _, port = split_address(address)
        if key == "listen.join" and port and address == listen.api:
            raise ConfigError(f"{key} is the same address as listen.api", key=key)
    if not listen.metrics:
        if config.metrics.token_file:
            words = "metrics.token_file means something with listen.metrics only"
            raise ConfigError(words, key="metrics.token_file")
        return
    with _naming("listen.metrics"):
        near = is_loopback(listen.metrics)
    open_to_all = token_file_of(config.metrics.token_file) is None and near
    if open_to_all and config.metrics.job_info and config.visibility.others != OTHERS[0]:
        raise ConfigError(
            "metrics.job_info tells every program of this host the users of jobs, which "
            "visibility.others hides",
            hint="name a metrics.token_file",
            key="metrics.job_info",
        )


def _check_files() -> None:
    """Refuse to start with fewer file descriptors than a small cluster needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < FEWEST_FILES:
        raise ConfigError(
            f"only {hard} files may be open; agents need two each", hint="raise LimitNOFILE"
        )


@contextmanager
def _failing(*kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds end the command with one line."""
    try:
        yield
    except kinds as error:
        _fail(error)


def _fail(error: BaseException) -> NoReturn:
    what = error.what if isinstance(error, DlqError) else str(error)
    hint = getattr(error, "hint", "")
    words = "\n".join(filter(None, (f"dlq-master: {what}", hint)))
    click.echo(for_journal(words, logging.ERROR, sys.stderr), err=True)
    sys.exit(1)
