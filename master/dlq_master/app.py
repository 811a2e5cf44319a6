"""The composition root of `dlq-master`: the one place where real things are built."""

import asyncio
import gc
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import click

from dlq_common.addresses import split_address
from dlq_common.clock import SteadyClock
from dlq_common.config import dump_config, load_config
from dlq_common.errors import ConfigError, DlqError
from dlq_common.identity_files import write_private, write_public
from dlq_common.ids import RandomIds
from dlq_common.logs import LEVELS, configure_logging, get_logger
from dlq_common.pki import Authority
from dlq_common.private_files import read_private
from dlq_master.control.config import MasterConfig
from dlq_master.control.failpoints import Failpoints
from dlq_master.control.loop import Loop
from dlq_master.control.scheduling import policy_of
from dlq_master.control.state import State, first_meta, restore
from dlq_master.control.ticks import PERIODS_S, start_metronome
from dlq_master.model.cluster import Cluster
from dlq_master.model.event import JournalEvent
from dlq_master.policy.policy import Policy
from dlq_master.rpc.audit import Audit
from dlq_master.rpc.login_broker import BrokerSettings, LoginBroker
from dlq_master.rpc.server import MasterServer, ServerSettings
from dlq_master.rpc.sessions import Sessions
from dlq_master.store.batch import Batch, User
from dlq_master.store.open import create_database, open_database
from dlq_master.store.reader import Reader
from dlq_master.store.rows import write_batch
from dlq_master.store.write import write
from dlq_master.store.writer import CommitFailed, Writer

DEFAULT_CONFIG = Path("/etc/dlq/master.toml")
# gRPC, SQLite, the log: what a master has open besides its agents' connections.
SPARE_FILES = 64
STOP_GRACE_S = 5.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The master of a dlq cluster: queues, leases, identities.

    \b
    Examples:
      dlq-master init --state-dir /var/lib/dlq --cluster lab --config /etc/dlq/master.toml
      dlq-master run --config /etc/dlq/master.toml --check-config
      dlq-master run --config /etc/dlq/master.toml
    """


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
def init(
    state_dir: Path,
    cluster: str,
    config_path: Path | None,
    listen: str,
    join_listen: str,
    checkpoint_root: Path | None,
) -> None:
    """Make a new cluster: its CA, an empty database, a first admin (you) and master.toml.

    \b
    Example:
      dlq-master init --state-dir /var/lib/dlq --cluster lab
    """
    clock = SteadyClock()
    state_dir = state_dir.absolute()
    config_path = (config_path or state_dir / "master.toml").absolute()
    checkpoint_root = (checkpoint_root or state_dir / "checkpoints").absolute()
    try:
        if (state_dir / "ca.key").exists() or config_path.exists():
            raise ConfigError(f"there is a cluster in {state_dir} already, or {config_path} exists")
        state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        _make_checkpoint_root(checkpoint_root)
        authority = Authority.create(cluster, clock.now_s())
        create_database(state_dir / "dlq.db")
        (state_dir / "dlq.db").chmod(0o600)
        admin = _invoker(clock.now_s())
        db = open_database(state_dir / "dlq.db")
        with write(db):
            write_batch(db, Batch(users=[admin], meta={"cluster": cluster, "epoch": "0"}))
        db.close()
        write_public(state_dir / "ca.crt", authority.certificate_pem())
        write_public(
            config_path,
            _first_config(cluster, state_dir, listen, join_listen, checkpoint_root).encode(),
        )
        # Last: with the key in place the cluster is complete.
        write_private(state_dir / "ca.key", authority.key_pem())
    except (DlqError, OSError, ValueError) as error:
        _fail(error)
    click.echo(f"cluster {cluster} made in {state_dir}; first admin: {admin.name}")
    click.echo(f"checkpoints of jobs: {checkpoint_root} (every node must have it)")
    click.echo(f"start it: dlq-master run --config {config_path}")
    click.echo(f"then log in: dlq login --socket {state_dir / 'login.sock'}")


@main.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="master.toml",
)
@click.option("--check-config", is_flag=True, help="print the effective configuration and leave")
@click.option("--log-level", type=click.Choice(LEVELS), default=None, help="overrides log.level")
def run(config_path: Path, check_config: bool, log_level: str | None) -> None:
    """Serve until SIGTERM or SIGINT. Jobs never notice that the master stops or starts.

    \b
    Example:
      dlq-master run --config /etc/dlq/master.toml
    """
    try:
        config = load_config(MasterConfig, config_path)
        policy = _checked(config)
    except DlqError as error:
        _fail(error)
    if check_config:
        click.echo(dump_config(config), nl=False)
        return
    configure_logging(SteadyClock(), level=log_level or config.log.level)
    try:
        asyncio.run(serve(config, policy))
    except CommitFailed as error:
        # Nothing that was not on disk has been told; the next start begins from there.
        get_logger("master").error("commit_failed", error=error.what)
        sys.exit(1)
    except (DlqError, OSError) as error:
        _fail(error)


async def serve(config: MasterConfig, policy: Policy) -> None:
    """Build the master, serve until a signal, leave in order. Raises CommitFailed when one did."""
    log = get_logger("master")
    state_dir = config.cluster.state_dir
    _check_files()
    authority = _authority(state_dir)
    if authority.cluster != config.cluster.name:
        raise ConfigError(
            f"cluster.name is {config.cluster.name!r}, the CA in {state_dir} is of {authority.cluster!r}"
        )
    writer = Writer(state_dir / "dlq.db")
    reader = Reader(state_dir / "dlq.db")
    loaded = reader.load()
    clock = SteadyClock(floor_s=loaded.last_time_s)
    configure_logging(clock, level=config.log.level)
    audit = Audit(state_dir / "audit.jsonl", clock)
    terms = config.lease.terms()
    state = State(
        config=config,
        terms=terms,
        policy=policy,
        cluster=Cluster(policy.ordering, terms),
        started_s=clock.now_s(),
        epoch=int(loaded.meta.get("epoch", "0")) + 1,
    )
    restore(state, loaded)
    del loaded
    gc.collect()
    gc.freeze()  # what was loaded stays: the collector need not look at it at every turn
    await writer.commit(_first_batch(state))
    periods_s = {**PERIODS_S, "backup": float(config.store.backup_every)}
    sessions = Sessions(str(config.jobs.checkpoint_root))
    loop = Loop(
        state=state,
        clock=clock,
        store=writer,
        records=reader,
        transport=sessions,
        failpoints=Failpoints(config.debug.failpoint),
        state_dir=state_dir,
        periods_s=periods_s,
    )
    server = MasterServer(
        ServerSettings(
            api_address=config.listen.api,
            join_address=config.listen.join,
            advertise=config.listen.advertise,
            version=version("dlq"),
        ),
        control=loop,
        sessions=sessions,
        authority=authority,
        audit=audit,
        clock=clock,
        ids=RandomIds(clock),
    )
    broker = LoginBroker(
        BrokerSettings(
            socket_path=Path(config.listen.login_socket or state_dir / "login.sock"),
            api_address=server.advertised,
            auto_users=config.identity.auto_users,
        ),
        loop,
        authority,
        clock,
        audit,
    )
    turning = asyncio.create_task(loop.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, loop.stop)
    metronome = start_metronome(loop.tell, periods_s)
    try:
        await server.start()
        await broker.start()
        log.info(
            "master_serving",
            api=server.advertised,
            join_port=server.join_port,
            epoch=state.epoch,
            jobs=len(state.cluster.jobs),
            nodes=len(state.cluster.nodes),
            policy=config.scheduler.policy,
        )
        await turning
    finally:
        metronome.shutdown(wait=False)
        await broker.stop()
        await server.stop(STOP_GRACE_S)
        writer.close()
        reader.close()
        await asyncio.to_thread(audit.close)
        log.info("master_stopped", epoch=state.epoch)


def _authority(state_dir: Path) -> Authority:
    try:
        key, certificate = read_private(state_dir / "ca.key"), (state_dir / "ca.crt").read_bytes()
        return Authority.load(key, certificate)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", hint="make the cluster first: dlq-master init"
        ) from None
    except ValueError as error:
        raise ConfigError(f"the CA in {state_dir}: {error}") from None


def _first_batch(state: State) -> Batch:
    """The new epoch is on disk before anything is said in its name."""
    started = JournalEvent(
        kind="master_started",
        time_s=state.started_s,
        seq=state.next_event,
        actor="master",
        data={"epoch": state.epoch},
    )
    state.next_event += 1
    return Batch(meta=first_meta(state), events=[started])


def _checked(config: MasterConfig) -> Policy:
    """Everything about a configuration that can be known to be wrong without serving."""
    try:
        config.lease.terms()
    except ValueError as error:
        raise ConfigError(f"lease: {error}") from None
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
    Failpoints(config.debug.failpoint)
    return policy_of(config)


def _check_addresses(config: MasterConfig) -> None:
    listen = config.listen
    for key, address in (
        ("listen.api", listen.api),
        ("listen.join", listen.join),
        ("listen.advertise", listen.advertise or listen.api),
    ):
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}", key=key) from None


def _check_files() -> None:
    """Refuse to start with fewer file descriptors than a small cluster needs."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 4 * SPARE_FILES:
        raise ConfigError(
            f"only {hard} files may be open; agents need two each", hint="raise LimitNOFILE"
        )


def _make_checkpoint_root(path: Path) -> None:
    """Root's is for everybody, as /tmp is: submitters make their own directories in it.

    One that is there already stays as it is.
    """
    if path.exists():
        return
    path.mkdir(parents=True)
    path.chmod(0o1777 if os.geteuid() == 0 else 0o700)


def _invoker(now_s: float) -> User:
    """The account that runs `init`, as the first admin."""
    import pwd

    account = pwd.getpwuid(os.getuid())
    groups = tuple(sorted(set(os.getgrouplist(account.pw_name, account.pw_gid))))
    return User(account.pw_name, "admin", account.pw_uid, account.pw_gid, groups, now_s)


def _first_config(
    cluster: str, state_dir: Path, listen: str, join_listen: str, checkpoint_root: Path
) -> str:
    return (
        "# Every key and its default: dlq-master run --check-config\n"
        f'[cluster]\nname = "{cluster}"\nstate_dir = "{state_dir}"\n\n'
        f'[listen]\napi = "{listen}"\njoin = "{join_listen}"\n\n'
        f'[jobs]\ncheckpoint_root = "{checkpoint_root}"\n'
    )


def _fail(error: BaseException) -> NoReturn:
    what = error.what if isinstance(error, DlqError) else str(error)
    click.echo(f"dlq-master: {what}", err=True)
    hint = getattr(error, "hint", "")
    if hint:
        click.echo(hint, err=True)
    sys.exit(1)
