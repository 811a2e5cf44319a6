"""The master's configuration: every knob, its default and its meaning."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from dlq_common.daemon.config import Bytes, Seconds
from dlq_common.errors import ConfigError
from dlq_master.control.activity_config import (
    ChecksConfig,
    FirstStepConfig,
    IdleConfig,
    StallConfig,
    StragglerConfig,
    idle_rule,
    idle_rules,
)
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.model.attempts.suspending import SuspendRules
from dlq_master.model.jobs.job import RestartLimits
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.resources import CORE_TYPE
from dlq_master.policy.activity import FirstStepRule, IdleRule


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The name of the cluster, and the places of its files."""

    name: str = "dlq"  # stands in certificates, so that a client never talks to another cluster
    # database, certificate authority and login socket, on a local disk
    state_dir: Path = Path("/var/lib/dlq")


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where we are reached. Other machines dial `advertise` when it differs from `api`."""

    api: str = "127.0.0.1:7320"  # HOST:PORT of the API, always with mutual TLS
    join: str = "127.0.0.1:7321"  # HOST:PORT at which new nodes join with a token
    advertise: str = ""  # HOST:PORT that nodes and users dial; "": as `api`
    login_socket: str = ""  # "" = login.sock in the state directory
    # Where Prometheus finds /metrics: plain on loopback, else by TLS with a certificate or a token;
    # "": nowhere.
    metrics: str = ""


@dataclass(frozen=True, slots=True)
class RelayConfig:
    """The process that moves the bytes of forwards and editors past the master
    (docs/running/services.md). It is started when the first of them comes.
    """

    # HOST:PORT, always with mutual TLS; "": the host of listen.api, and its port + 3; "off": there
    # is none, and all bytes go through the master.
    listen: str = ""
    advertise: str = (
        ""  # HOST:PORT that nodes and users dial; "": the master's host as they dial it
    )


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Access to /metrics, and series that name nodes, jobs and people
    (docs/running/monitoring.md).
    """

    # A bearer token that scrapers show, alone in a file of mode 0600; "": none. Without it a
    # scraper of another host needs a certificate of the cluster's CA.
    token_file: str = ""
    node_info: bool = False  # dlq_node_info: one line for each node
    # dlq_gpu_job_info: one line for each held GPU, with its job and user. Also the numbers of jobs
    # as exemplars.
    job_info: bool = False
    # /metrics/slurm: the figures by the names of Slurm and of its exporters
    # (docs/reference/slurm-metrics.md).
    slurm_names: bool = False


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """The five numbers of the lease, and what goes with them (model/lease.py says what they
    mean).
    """

    heartbeat: Seconds = Seconds(5.0)  # how often agents report
    ttl: Seconds = Seconds(20.0)  # a node that is silent for so long is SUSPECT
    unreachable: Seconds = Seconds(25.0)  # and one that is silent for so long is UNREACHABLE
    hold: Seconds = Seconds(3600.0)  # the silence of the master that a job survives
    hold_margin: Seconds = Seconds(5.0)  # added to the hold before the master gives GPUs away
    be_term: Seconds = Seconds(300.0)  # the term of best-effort leases
    slo_term: Seconds = Seconds(1200.0)  # the term of SLO leases; a whole multiple of be_term
    save_lead: Seconds = Seconds(30.0)  # a lapse is decided so long before its boundary
    resume: Seconds = Seconds(30.0)  # from a resumed start until work goes on, as plans count it
    # Requeues freeze when more than this part of the nodes, and at least so many, fall silent
    # within the window. The cause is then the network rather than the nodes. Or when our own loop
    # lags this long.
    freeze_fraction: float = 0.20
    freeze_nodes: int = 3  # the fewest silent nodes that freeze requeues
    freeze_window: Seconds = Seconds(60.0)  # the window in which nodes fall silent together
    # A silent node freezes requeues for no longer than this. Then the nodes are taken for lost.
    freeze_longest: Seconds = Seconds(14_400.0)
    loop_lag_limit: Seconds = Seconds(5.0)  # requeues freeze while the master itself is this late

    def terms(self) -> Terms:
        """The same, as the core wants it. Raises ConfigError when the numbers contradict each
        other.
        """
        keys = (field.name for field in fields(Terms))
        try:
            return Terms(**{key: getattr(self, key.removesuffix("_s")) for key in keys})
        except ValueError as error:  # the core's names of these keys end with their unit
            raise ConfigError(f"lease: {re.sub(r'_s(?![a-z])', '', str(error))}") from None


@dataclass(frozen=True, slots=True)
class NodesConfig:
    """How agents come back, and for how long they may be away by agreement."""

    # agents dial again after a random part of this, so that they do not all come at once
    reconnect_jitter: Seconds = Seconds(15.0)
    # After a start nothing new is placed until 95 % of the known nodes are back, or this long.
    start_grace: Seconds = Seconds(60.0)
    # The longest absence that `dlq-nodeagent maintenance` may announce.
    longest_maintenance: Seconds = Seconds(8 * 3600.0)


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """When GPUs and nodes take no work for what is wrong with them (docs/running/gpu-health.md)."""

    # An own word on a symptom: xid_31 = "monitor", row_remap_pending = "none". See
    # model/nodes/gpu_health.py.
    actions: Mapping[str, str] = field(default_factory=dict)
    # A node that fails so many different jobs within `quarantine_window` takes no more; 0: never.
    # It fails those that it cannot start by a fault of its own, and those that end badly within
    # `quarantine_fast` on a GPU that ails.
    quarantine_jobs: int = 3
    # a job that ends so early on an ailing GPU counts as failed by its node
    quarantine_fast: Seconds = Seconds(60.0)
    quarantine_window: Seconds = Seconds(600.0)  # the window in which failed jobs count
    # The master itself drains or quarantines no more than this part of the nodes; one it always
    # may, the last one never.
    closed_share: float = 0.25
    # A node that is not clean after so long is cordoned, for an operator to look at.
    cleaning_limit: Seconds = Seconds(600.0)


@dataclass(frozen=True, slots=True)
class LoansConfig:
    """Servers that the inference side lends (docs/sites/loans.md)."""

    # A GPU without processes and with less memory in use than this is empty: drivers keep some.
    free_below: Bytes = Bytes(500 * 1024**2)
    # The source of the inference load, as a share from 0 to 1 of all servers. It is a file,
    # "http://..." (a number, or JSON with "busy"), or "prometheus:http://host:9090?query=...".
    # Empty: no source, and people and the inference side lend.
    load: str = ""
    every: Seconds = Seconds(30.0)  # how often the load is read
    max_age: Seconds = Seconds(
        0.0
    )  # of a file; one that was not written for longer tells nothing; 0: no limit
    headroom: float = 0.05  # of all servers, kept idle for the next peak
    settle: Seconds = Seconds(600.0)  # so long servers must have been idle before they are lent
    within: Seconds = Seconds(0.0)  # a reclaim ends jobs after this; 0: when they have saved


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """A preset by name, and its settings as `dlq simulate --set` takes them."""

    policy: str = "dlq"  # the preset that decides; `dlq admin policy set` chooses another one
    # of the preset, such as be_floor = "0.1"
    settings: Mapping[str, str] = field(default_factory=dict)
    # So many cores of a job without GPUs count as one GPU, where jobs are ordered by service or
    # size, and in shares. A job keeps the number with which it was submitted.
    cores_per_gpu: float = 8.0
    # A plan that may take long is made in a process of its own, which is ended if it takes longer.
    plan_limit: Seconds = Seconds(20.0)


@dataclass(frozen=True, slots=True)
class GpuTypeConfig:
    """One GPU type: `[gpu_types.t4]` means all types that begin with `t4-`, `[gpu_types."t4-16gb"]`
    that one. A type without a table has speed 1.
    """

    # The work of one of these GPUs in the time in which a GPU of speed 1 does 1. Run times and
    # service count by it (docs/running/nodes.md).
    speed: float


@dataclass(frozen=True, slots=True)
class ProfilerConfig:
    """Whose network traffic is recorded at a start (docs/sites/profiler.md)."""

    # auto: the first start of a distributed job, or of its family, and a start on another number of
    # nodes. asked: jobs with `--profile`. off: never.
    mode: str = "auto"
    window: Seconds = Seconds(120.0)  # recording ends so long after the start; the job goes on
    # Rate of the link between two nodes in Gbit/s, by which slowdowns are foretold; 0: not known,
    # then only those that were measured count.
    link_gbits: float = 0.0

    @property
    def bytes_per_s(self) -> float | None:
        """The same, in bytes per second."""
        return self.link_gbits * 1e9 / 8 if self.link_gbits else None


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Queues with a higher priority are served first. Submissions beyond a limit are refused; None:
    there is none.
    """

    name: str  # as users name it with -p
    priority: int = 0  # queues with a higher number are served first
    jobs: int | None = None  # that have not ended
    jobs_per_user: int | None = None  # jobs of one user in this queue that have not ended


@dataclass(frozen=True, slots=True)
class InteractiveConfig:
    """The queue of interactive jobs: served first, preempted last, with limits of its own. A floor
    of GPUs is kept free for it, so that a job of it starts at once (docs/running/interactive.md).
    """

    queue: str = ""  # its name, one of [[queues]]; empty: there is none
    # GPUs of the floor, with those that its jobs hold; below 1: a share of all GPUs of the most
    # frequent type. Of policy dlq only.
    floor: float = 0.0
    time_limit: Seconds = Seconds(28_800.0)  # of a job that asks for none
    max_time: Seconds = Seconds(28_800.0)  # the longest that a job may ask for
    gpus_per_job: int | None = None  # of one job; unset: any number
    gpus_per_user: int | None = None  # of all jobs of one user that have not ended
    warning: Seconds = Seconds(900.0)  # its owner is told so long before the time limit
    # A job without work for so long is idle, whatever [[idle]] exempts.
    idle_window: Seconds = Seconds(7200.0)
    idle_action: str = "notify"  # "warn", "notify", "pause" or "cancel", as in [[idle]]

    @property
    def floor_words(self) -> dict[str, str]:
        """The setting of a policy that keeps the floor."""
        return {"queue_floor": f"{self.queue}:{self.floor:g}"} if self.floor else {}


_SITE_CAUSES = ("node", "gpu", "preemption", "start")
MOST_RESTARTS = 100  # the most that a job may ask for


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """Limits and defaults of jobs."""

    default_queue: str = "default"  # where jobs go that name no queue
    checkpoint_root: Path = Path("/var/lib/dlq/checkpoints")  # shared by all nodes
    first_grace: Seconds = Seconds(300.0)  # until saves of the job have been observed
    grace_floor: Seconds = Seconds(60.0)  # the shortest time that a job gets for a save
    grace_cap: Seconds = Seconds(600.0)  # the longest
    # After an attempt that the cluster failed; twice as long after each further one.
    retry_backoff: Seconds = Seconds(10.0)
    # An attempt that ran so long, or saved, shows that its job is sound: earlier failures are
    # forgiven.
    forgive_after: Seconds = Seconds(3600.0)
    # Restarts after single causes, of jobs that set no limit for the cause: node = 5. Causes: node,
    # gpu, preemption, start. Without a limit node and start have two restarts together. Preemption
    # then has no limit, and gpu counts as an error of the job.
    restart_limits: Mapping[str, int] = field(default_factory=dict)
    # From TERM to KILL where a job with compat = "slurm" is cancelled, or is at its time limit. At
    # the limit it is also the grace of any job that was warned.
    kill_wait: Seconds = Seconds(30.0)
    attend_silence: Seconds = Seconds(30.0)  # then an interactive job without a client is cancelled
    concurrent_saves: int = 16  # more lapses than this start their saves one after another
    queued_per_user: int = 10_000  # jobs of one user that have not ended
    # One user may submit so many jobs at once.
    submit_burst: int = 10_000
    submit_rate: float = 100.0  # jobs of one user in a second, in the long run
    # How long the ranks of a gang wait for its last node, from the first that is ready.
    barrier_timeout: Seconds = Seconds(600.0)
    port_first: int = 20_000  # rendezvous ports, one for each living attempt
    port_last: int = 29_999  # the last rendezvous port
    # how long a repeated request gets its first answer
    request_id_kept: Seconds = Seconds(7 * 86_400.0)

    def limited(self, asked: RestartLimits) -> RestartLimits:
        """The limits of a job that asks for these. Raises ConfigError for a setting that no job may
        have.
        """
        for cause, most in self.restart_limits.items():
            key = f"jobs.restart_limits.{cause}"
            if cause not in _SITE_CAUSES:
                raise ConfigError(f"{key}: a cause is one of {', '.join(_SITE_CAUSES)}", key=key)
            if not 0 <= most <= MOST_RESTARTS:
                raise ConfigError(f"{key}: {most} is not between 0 and {MOST_RESTARTS}", key=key)
        said = {cause: most for cause, most in asked._asdict().items() if most is not None}
        return RestartLimits(**{**self.restart_limits, **said})


@dataclass(frozen=True, slots=True)
class SuspensionConfig:
    """Jobs that leave their GPUs without a save (docs/running/suspend.md). Nodes allow it by
    suspend.memory of their agents.
    """

    longest: Seconds = Seconds(3600.0)  # off its GPUs for another job; then its checkpoint counts
    wait: Seconds = Seconds(60.0)  # for the job that it left for, to start
    move: Seconds = Seconds(120.0)  # off its GPUs, or back; then it is given up
    # Off its GPUs by a person's wish: then it comes back to save, and is paused. 0s: no limit.
    by_person: Seconds = Seconds(0.0)

    def rules(self) -> SuspendRules:
        """As the core wants them."""
        return SuspendRules(longest_s=self.longest, wait_s=self.wait, move_s=self.move)


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """People that the login broker may let in, and those for whom a web server may act."""

    auto_users: bool = True  # an account of the master's host without a user row gets role "user"
    # Roles of users for whom a service with the role "web" may call; "operator" and "admin" only
    # where the page shall have their rights.
    web_may_act_for: tuple[str, ...] = ("user",)
    # The address of the web server for all, which `dlq web --link` names; "": there is none.
    web_address: str = ""
    # The life of a certificate that such a service may give to a user who has signed in there, for
    # `dlq login --oidc`: at most 15d. 0s: it gives none.
    web_certificates: Seconds = Seconds(0.0)
    # The two tables below count for sessions at such a service, as long as they last. A group is of
    # the issuer at which the user signed in. A role must be one of `web_may_act_for`.
    group_roles: Mapping[str, str] = field(default_factory=dict)  # group = "operator"
    group_teams: Mapping[str, str] = field(default_factory=dict)  # group = "team"


SQLITE, POSTGRESQL = "sqlite", "postgresql"
TLS_MODES = ("disable", "require", "verify-ca", "verify-full")


@dataclass(frozen=True, slots=True)
class LeaderConfig:
    """A standby beside the master, on PostgreSQL (docs/running/high-availability.md)."""

    # HOST:PORT of the API of every master, this one among them; none: this master leads alone.
    masters: tuple[str, ...] = ()
    ttl: Seconds = Seconds(4.0)  # a leader that is not heard for so long is replaced
    renew: Seconds = Seconds(1.0)  # how often the leader renews its lease
    poll: Seconds = Seconds(0.25)  # how often a standby looks
    # System identifiers of PostgreSQL servers that this cluster has left for good. Without them
    # masters and agents refuse the next server.
    former_systems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The database: one file of SQLite, or a PostgreSQL server (docs/running/postgresql.md)."""

    # "sqlite": dlq.db in the state directory; "postgresql": the database of `dsn`.
    backend: str = SQLITE
    # With SQLite: how often the copy beside the database is replaced.
    backup_every: Seconds = Seconds(300.0)
    # Below so much free space in the state directory submissions are refused, ends are not.
    free_disk_floor: Bytes = Bytes(256 << 20)
    # As libpq takes it: "host=db1,db2 dbname=dlq user=dlq", or "service=dlq"; without a password.
    dsn: str = ""
    password_file: str = ""  # the password, alone in a file of mode 0600
    tls: str = "verify-full"  # libpq's sslmode; a socket of this host has no TLS
    tls_ca: str = ""  # the certificates by which the server is trusted
    # Start on a server without a synchronous standby: the loss of its disk loses acknowledged work.
    allow_asynchronous: bool = False


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """The settings of `dlq-master backup` beside the copy (docs/running/backup.md)."""

    # The CA's key in a copy: "clear"; "encrypted" with the passphrase of a file; "apart": not there
    # at all.
    ca_key: str = "clear"
    passphrase_file: str = ""  # with ca_key = "encrypted"; mode 0600
    # A program and its arguments, run after each copy with the copy's directory as the last one.
    # With it the CA's key may not be "clear": it would leave the host.
    hook: tuple[str, ...] = ()
    hook_user: str = ""  # when root makes the backup; "": the owner of the state directory
    hook_timeout: Seconds = Seconds(600.0)  # how long the hook may run


# The file of the state directory in which a shipping master says how far it is.
SHIPPING_STATUS = "shipping.status"


@dataclass(frozen=True, slots=True)
class ShippingConfig:
    """Every commit in a second place, within about a second (docs/running/shipping.md). The CA's
    key goes along only as [backup] ca_key = "encrypted" says; it may not be "clear"."""

    directory: str = ""  # an absolute path on another disk or host, made before; "": none
    # A program and its arguments that reach `dlq-master receive` on another host, such as ssh.
    command: tuple[str, ...] = ()
    every: Seconds = Seconds(1.0)  # how often commits are shipped: about what a lost host loses
    snapshot_every: Seconds = Seconds(3600.0)  # how often the whole database follows, at most
    same_disk: bool = False  # true: the directory may be on the master's own disk; for trials

    @property
    def is_on(self) -> bool:
        """Whether this master ships."""
        return bool(self.directory or self.command)


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """How long what is over stays where. Rows of jobs, and the audit, stay for good."""

    # Ended jobs in memory; older ones are read from the database, which is as good and slower.
    ended_kept: Seconds = Seconds(3600.0)
    ended_most: int = 10_000  # the most ended jobs in memory
    # Events older than this, and beyond the newest so many, are cut; never those of jobs that live.
    journal_kept: Seconds = Seconds(30 * 86_400.0)
    journal_most: int = 2_000_000  # the most events that the journal keeps
    compact_every: Seconds = Seconds(3600.0)  # how often events are cut


@dataclass(frozen=True, slots=True)
class TwinConfig:
    """The process that foresees when jobs start. It is started when somebody looks at a waiting job
    or asks, and leaves after ten minutes without that. Meanwhile it looks when something has
    changed.
    """

    enabled: bool = True  # without it `dlq status` and `dlq estimate` show no forecast
    refresh_every: Seconds = Seconds(15.0)  # not more often than this
    cpu_seconds: float = 5.0  # for one look at everybody, and for a question about one job
    cpu_share: float = 0.1  # of a core, on average, for looks


CLOSED, OPEN = "closed", "open"


@dataclass(frozen=True, slots=True)
class HooksConfig:
    """Python functions of the operator about submissions and attempts (docs/running/hooks.md)."""

    file: str = ""  # the absolute path of a Python file; "": there are no hooks
    # A failure of on_submit: "closed" refuses the job, "open" accepts it as it is; "": not called.
    on_submit: str = ""
    on_start: str = ""  # a failure of it: "closed" holds the job, "open" notes it; "": not called
    on_end: str = ""  # likewise
    user: str = "dlq-hooks"  # the account of hooks, where root runs the master
    socket: str = "/run/dlq/hooks.sock"  # of dlq-hooks.socket, by which another master starts them
    time_limit: Seconds = Seconds(1.0)  # of a call; then the process is killed
    memory: Bytes = Bytes(256 << 20)  # of the process of hooks
    waiting: int = 64  # submissions that may wait for it; each user has room for one, always
    waiting_per_user: int = 16  # of one user; a further one is refused
    # Hooks run in the master's own account, which owns the CA's key: for development alone.
    allow_master_account: bool = False

    @property
    def follows(self) -> bool:
        """Whether starts or ends of attempts are told to it."""
        return bool(self.file and (self.on_start or self.on_end))


OTHERS = ("named", "nameless", "hidden")


@dataclass(frozen=True, slots=True)
class VisibilityConfig:
    """How much users see of other people's living jobs: number, user, queue, resources, nodes,
    state and times; the same without the user; or nothing. Operators and admins see all.
    """

    # "named": all of these; "nameless": without the user; "hidden": nothing
    others: str = OTHERS[0]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Lines below the level are not written."""

    level: str = "info"  # "debug", "info", "warning" or "error"
    # A longer turn of the loop writes `slow_turn` with what was in it, one line in 10 s at most; 0:
    # none does.
    slow_turn: Seconds = Seconds(0.05)


@dataclass(frozen=True, slots=True)
class DebugConfig:
    """For tests by name: `after_commit:7` kills the process at its seventh passage there,
    `after_commit@promise_made` at the first at which a promise has been made."""

    failpoint: str = ""  # "": none; never set it on a real cluster


@dataclass(frozen=True, slots=True)
class MasterConfig:
    """The whole of master.toml."""

    cluster: ClusterConfig = ClusterConfig()
    listen: ListenConfig = ListenConfig()
    relay: RelayConfig = RelayConfig()
    metrics: MetricsConfig = MetricsConfig()
    lease: LeaseConfig = LeaseConfig()
    nodes: NodesConfig = NodesConfig()
    health: HealthConfig = HealthConfig()
    loans: LoansConfig = LoansConfig()
    pools: tuple[PoolConfig, ...] = ()
    renting: RentingConfig = field(default_factory=RentingConfig)
    scheduler: SchedulerConfig = SchedulerConfig()
    gpu_types: Mapping[str, GpuTypeConfig] = field(default_factory=dict)
    profiler: ProfilerConfig = ProfilerConfig()
    queues: tuple[QueueConfig, ...] = (QueueConfig("default"),)
    interactive: InteractiveConfig = InteractiveConfig()
    jobs: JobsConfig = JobsConfig()
    suspend: SuspensionConfig = SuspensionConfig()
    idle: tuple[IdleConfig, ...] = ()
    stall: StallConfig = field(default_factory=StallConfig)
    first_step: FirstStepConfig = field(default_factory=FirstStepConfig)
    straggler: StragglerConfig = field(default_factory=StragglerConfig)
    checks: ChecksConfig = field(default_factory=ChecksConfig)
    identity: IdentityConfig = IdentityConfig()
    store: StoreConfig = StoreConfig()
    leader: LeaderConfig = LeaderConfig()
    backup: BackupConfig = BackupConfig()
    shipping: ShippingConfig = ShippingConfig()
    retention: RetentionConfig = RetentionConfig()
    twin: TwinConfig = TwinConfig()
    hooks: HooksConfig = HooksConfig()
    visibility: VisibilityConfig = VisibilityConfig()
    log: LogConfig = LogConfig()
    debug: DebugConfig = DebugConfig()

    def first_step_rule(self) -> FirstStepRule | None:
        """The rule of `[first_step]`. Raises ConfigError, with the key, for one that cannot be."""
        queues = [queue.name for queue in self.queues]
        return self.first_step.rule(self.stall.rule(), queues)

    def idle_rules(self) -> tuple[IdleRule, ...]:
        """The rules of `[[idle]]`, and that of interactive jobs behind them. Raises ConfigError,
        with the key, for one that cannot be.
        """
        rules = idle_rules(self.idle, [queue.name for queue in self.queues])
        asked = self.interactive
        if not asked.queue:
            return rules
        always = IdleConfig(
            window=asked.idle_window,
            interactive_window=asked.idle_window,
            action=asked.idle_action,
            dry_run=False,
            queue=asked.queue,
        )
        rule = idle_rule(always, "interactive.idle_", [asked.queue])
        return (*rules, replace(rule, section="[interactive]"))

    def type_speeds(self) -> TypeSpeeds:
        """The declared speeds of GPU types, as the core wants them. Raises ConfigError for a name
        or a speed that none can have.
        """
        for name, declared in self.gpu_types.items():
            key = f"gpu_types.{name}"
            if name == CORE_TYPE or not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
                raise ConfigError(f"{key}: {name!r} is no name of a GPU type", key=key)
            if not _SLOWEST <= declared.speed <= _FASTEST:
                told = f"{declared.speed:g} is not between {_SLOWEST:g} and {_FASTEST:g}"
                raise ConfigError(f"{key}.speed: {told}", key=f"{key}.speed")
        return TypeSpeeds({name: declared.speed for name, declared in self.gpu_types.items()})


_SLOWEST, _FASTEST = 0.001, 1000.0  # of a GPU, relative to the reference
