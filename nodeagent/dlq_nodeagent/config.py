"""The agent's configuration: every knob, its default and its meaning."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from dlq_common.daemon.config import Bytes
from dlq_common.errors import ConfigError
from dlq_common.text.addresses import is_loopback, split_addresses
from dlq_common.text.names import check_word
from dlq_nodeagent.core import CoreSettings
from dlq_nodeagent.devices.choose import check_devices_word
from dlq_nodeagent.devices.cores import BY_GPUS, Division
from dlq_nodeagent.devices.watch import GpusConfig
from dlq_nodeagent.launch.rules import AgentJobsConfig, LaunchRules, OutputConfig
from dlq_nodeagent.line.uplink import ReconnectConfig
from dlq_nodeagent.model.launch import RunAs
from dlq_nodeagent.runtimes.podman.client import PodmanConfig
from dlq_nodeagent.suspension.port import SuspendConfig
from dlq_nodeagent.users_map import check_users_map

_LONGEST_RUN_ROOT = 50  # podman's own limit


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The node's name, and the place of the agent's files."""

    name: str = ""  # wished at the join; "" = the host's name. The certificate's name counts
    state_dir: Path = Path("/var/lib/dlq-agent")  # identity, journal and output, on a local disk
    # inference: jobs only while it is lent; a pool of the master's by name: it is rented
    # (docs/sites/pools.md)
    pool: str = "training"
    instance: str = ""  # name of a rented machine at its provider
    devices: str = "nvml"  # or "none", or virtual ones: "fake:8xH100-80GB"
    address: str = ""  # where other nodes of a gang reach this one; "" = the host's name
    # Cores and memory of the host, in the place of what it has; 0 = as it has. For tests: with
    # another number of cores no job is kept on its own.
    cpus: int = 0
    memory: Bytes = Bytes(0)  # of the host; 0 = as it has
    # Cores that belong to each GPU. The others are for jobs without GPUs; 0 = all are the GPUs'.
    cpus_per_gpu: int = 0
    # Cores for jobs without GPUs; -1 = those that cpus_per_gpu leaves. A host without GPUs then
    # gives all of its cores, or all but one from 4 cores on.
    job_cpus: int = -1
    cgroup: str = ""  # jobs' groups go below this one, "/system.slice/x.service"; "" = the agent's


@dataclass(frozen=True, slots=True)
class MasterAddressConfig:
    """The address of the master, as HOST:PORT; of all masters, with commas, where one stands by."""

    address: str = ""  # its API; "" = the name that it gave at the join
    join: str = ""  # its join port, for `dlq-nodeagent join`


@dataclass(frozen=True, slots=True)
class DiskConfig:
    """The disk of node.state_dir, on which every rank and its end need room."""

    spare: Bytes = Bytes(1024**3)  # with less left nothing new is placed here; 0 = never mind


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Every section of nodeagent.toml."""

    node: NodeConfig = field(default_factory=NodeConfig)
    master: MasterAddressConfig = field(default_factory=MasterAddressConfig)
    jobs: AgentJobsConfig = field(default_factory=AgentJobsConfig)
    podman: PodmanConfig = field(default_factory=PodmanConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    disk: DiskConfig = field(default_factory=DiskConfig)
    gpus: GpusConfig = field(default_factory=GpusConfig)
    suspend: SuspendConfig = field(default_factory=SuspendConfig)
    reconnect: ReconnectConfig = field(default_factory=ReconnectConfig)
    # lines below it are not written
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def division(self) -> Division:
        """How the host's cores are divided."""
        node = self.node
        return Division(
            cpus=node.cpus,
            memory_bytes=node.memory,
            cpus_per_gpu=node.cpus_per_gpu,
            job_cpus=node.job_cpus,
        )

    @property
    def wished_name(self) -> str:
        """The node id asked for at the join."""
        return self.node.name or platform.node().lower()

    @property
    def run_as(self) -> RunAs:
        """The user whose rights jobs have."""
        if self.jobs.run_as == "auto":
            return "submitter" if os.getuid() == 0 and not self.jobs.allow_root else "self"
        return self.jobs.run_as

    @property
    def root_jobs(self) -> bool:
        """Whether jobs run as root: shown wherever the node is shown."""
        return self.run_as == "self" and os.getuid() == 0

    def core(self) -> CoreSettings:
        return CoreSettings(
            jobs=self.jobs,
            reconnect=self.reconnect,
            release_timeout_s=self.gpus.release_timeout,
        )

    def rules(self) -> LaunchRules:
        return LaunchRules(
            jobs=self.jobs,
            output=self.output,
            run_as=self.run_as,
            scripts=self.node.state_dir / "scripts",
            stand_ins=self.node.state_dir,
        )


def check_config(config: AgentConfig) -> None:
    """Refuse faults that show without touching anything. Raises ConfigError."""
    _keyed("node.devices", lambda: check_devices_word(config.node.devices))
    for key, address in (
        ("master.address", config.master.address),
        ("master.join", config.master.join),
    ):
        if address:
            _keyed(key, partial(split_addresses, address))
    _check_pool(config.node)
    if config.node.cgroup and not config.node.cgroup.startswith("/"):
        raise ConfigError(
            f"node.cgroup: {config.node.cgroup!r} is not absolute",
            hint='as in /proc/PID/cgroup: "/system.slice/dlq-jobs.service"',
            key="node.cgroup",
        )
    _check_cores(config.node)
    for key, roots in (
        ("jobs.roots", config.jobs.roots),
        ("podman.mount_roots", config.podman.mount_roots),
        ("gpus.job_mapping", (config.gpus.job_mapping or "/",)),
    ):
        relative = [path for path in roots if not path.startswith("/")]
        if relative:
            raise ConfigError(f"{key}: {relative[0]} is not absolute", key=key)
    for key, count in (
        ("podman.pulls", config.podman.pulls),
        ("podman.pulls_per_user", config.podman.pulls_per_user),
    ):
        if count < 1:
            raise ConfigError(f"{key}: {count} is less than 1, so nothing is ever pulled", key=key)
    if len(os.fsencode(config.podman.run_root)) > _LONGEST_RUN_ROOT:
        raise ConfigError(
            f"podman.run_root: {config.podman.run_root} is longer than {_LONGEST_RUN_ROOT} bytes, "
            "which podman refuses (its sockets are below it)",
            hint="name a shorter directory on a tmpfs, such as /run/dlq-podman",
            key="podman.run_root",
        )
    if config.jobs.runtime == "podman" and os.getuid() != 0:
        raise ConfigError(
            "jobs.runtime = podman needs an agent that runs as root",
            hint="an unprivileged podman can neither limit containers nor give them GPUs",
            key="jobs.runtime",
        )
    if config.run_as == "submitter" and os.getuid() != 0:
        raise ConfigError(
            "jobs.run_as = submitter needs an agent that runs as root", key="jobs.run_as"
        )
    if config.root_jobs and not config.jobs.allow_root:
        raise ConfigError(
            "the agent runs as root, so jobs would too",
            hint="use jobs.run_as = submitter, or --allow-root-jobs on a development machine",
            key="jobs.run_as",
        )


def _check_cores(node: NodeConfig) -> None:
    for key, number, least in (
        ("node.cpus", node.cpus, 0),
        ("node.memory", node.memory, 0),
        ("node.cpus_per_gpu", node.cpus_per_gpu, 0),
        ("node.job_cpus", node.job_cpus, BY_GPUS),
    ):
        if number < least:
            raise ConfigError(f"{key}: {number} is less than {least}", key=key)


def _check_pool(node: NodeConfig) -> None:
    _keyed("node.pool", partial(check_word, node.pool, "pool"))
    if node.instance and node.pool in ("training", "inference"):
        raise ConfigError(
            f"node.instance is of rented machines, and this is one of pool {node.pool}",
            key="node.instance",
        )


def _keyed(key: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ValueError as error:
        raise ConfigError(f"{key}: {error}", key=key) from None


def check_host(config: AgentConfig) -> None:
    """Refuse a host that is not ready for this configuration. Raises ConfigError."""
    # Fake jobs have no processes, and so no users.
    if config.run_as == "submitter" and config.jobs.runtime != "fake":
        check_users_map(config.node.state_dir)


def check_master_address(config: AgentConfig, address: str) -> None:
    """Jobs of an agent that runs them as root come from this machine only. Raises ConfigError."""
    if config.root_jobs and not _all_here(address):
        raise ConfigError(
            f"jobs run as root here, so the master must be on loopback, not {address}",
            hint="--allow-root-jobs is for development on one machine",
            key="master.address",
        )


def node_address(config: AgentConfig, master_address: str) -> str:
    """The address at which other nodes of a gang reach this one."""
    if config.node.address:
        return config.node.address
    return "127.0.0.1" if _all_here(master_address) else platform.node()


def _all_here(masters: str) -> bool:
    return all(map(is_loopback, split_addresses(masters)))
