"""Pools of machines that may be rented, their providers and their prices: `[[pools]]` and
`[renting]` of master.toml.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from dlq_common.daemon.config import Seconds
from dlq_common.errors import ConfigError
from dlq_common.text.instants import parse_instant
from dlq_common.text.names import check_word
from dlq_common.text.suggest import did_you_mean
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.nodes.type_speeds import TypeSpeeds

if TYPE_CHECKING:
    from dlq_master.policy.priced.catalogue import NodeType

STATIC, EXEC, SLURM = PROVIDERS = "static", "exec", "slurm"

TOKEN_S = 3600.0  # the longest life of the join token of a machine


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Machines of one kind, and their provider (docs/sites/pools.md)."""

    name: str  # as agents say it: --pool NAME
    provider: str  # how machines are started and stopped: "exec", "static" or "slurm"
    gpu_type: str  # of one machine, as its agent reports it
    gpus: int  # of one machine
    price_per_hour: float  # of one machine, whether it is used or not
    most: int = 1  # machines at a time
    # Of a GPU, relative to what run times are estimated for; default: that of its type
    # (docs/running/nodes.md).
    speed: float | None = None
    boot: Seconds = Seconds(120.0)  # from when it is asked for until it takes work
    minimum_billing: Seconds = Seconds(0.0)  # the shortest time that a machine is paid for
    available_until: str = ""  # an instant at which the provider takes all back; "": never
    leave: Seconds = Seconds(300.0)  # before that, its jobs get so long to save
    give_up: float = 3.0  # a machine that has not come after so many times `boot` is given back
    # provider = "exec": called with start, stop or list (docs/sites/providers.md)
    program: str = ""
    timeout: Seconds = Seconds(60.0)  # of one call
    user: str = ""  # whose account it runs as, never the master's; "": dlq-provider
    helper: str = "/run/dlq/provider.sock"  # runs it as `user` for a master that is not root
    # provider = "static": nodes that are there anyway, and priced while they are used
    hosts: tuple[str, ...] = ()
    # provider = "slurm": dlq-nodeagent on the hosts of Slurm, its configuration there, and what
    # sbatch is told besides, such as "--partition=spot"
    pilot: str = ""
    pilot_config: str = ""  # path of the agent's configuration on the hosts of Slurm
    sbatch: tuple[str, ...] = ()  # further options of sbatch, such as "--partition=spot"
    # Join tokens of pilots are files here, which `user` alone can read: on the hosts of Slurm too.
    token_dir: str = ""  # "": .dlq-pilots in the home of `user`

    @property
    def patience_s(self) -> float:
        """From when a machine is asked for until it is given up. Its token is good for so long."""
        return min(max(self.boot * self.give_up, 10.0), TOKEN_S)

    def could_hold(self, job: Job) -> bool:
        """Whether one of its machines could hold the job."""
        return job.request.base <= self.gpus and job.request.shape.may_be(self.gpu_type)

    @property
    def until_s(self) -> float:
        """When its provider takes all back; inf: never."""
        return (
            parse_instant(self.available_until, now_s=0.0, zone=UTC)
            if self.available_until
            else math.inf
        )


@dataclass(frozen=True, slots=True)
class RentingConfig:
    """The method that decides on renting, and the most that it may cost, in the currency of
    `price_per_hour`.
    """

    policy: str = "dlq"  # or a gpuaas preset: it chooses types and numbers of GPUs
    # of that policy, as in `dlq simulate --set`
    settings: dict[str, str] = field(default_factory=dict)
    most_per_hour: float | None = None  # of all machines at a time
    most_per_day: float | None = None  # of what was rented in the last 24 hours
    look_every: Seconds = Seconds(30.0)  # at what providers say is there
    # Programs of pools may run in the master's account, which owns the CA's key: on a machine of
    # one user. Refused where the master listens beyond loopback.
    allow_master_account: bool = False


def check_pools(pools: tuple[PoolConfig, ...], renting: RentingConfig) -> None:
    """Raises ConfigError naming the key that is wrong."""
    names = [pool.name for pool in pools]
    for number, pool in enumerate(pools):
        _check_pool(pool, f"pools[{number}]")
        if names.index(pool.name) != number:
            _wrong(f"pools[{number}].name", f"there are two pools {pool.name!r}")
    hosts = [host for pool in pools for host in pool.hosts]
    for host in hosts:
        if hosts.count(host) > 1:
            _wrong("pools", f"host {host} is named twice")
    for key in ("most_per_hour", "most_per_day"):
        most = getattr(renting, key)
        if most is not None and not 0 <= most < math.inf:
            _wrong(f"renting.{key}", f"{most} is negative")
    if renting.look_every < 1.0:
        _wrong("renting.look_every", "must be at least 1s")


def _check_pool(pool: PoolConfig, key: str) -> None:
    for name, text in (("name", pool.name), ("gpu_type", pool.gpu_type)):
        _keyed(f"{key}.{name}", partial(check_word, text, name))
    if pool.name in [word.value for word in NodePool]:
        _wrong(f"{key}.name", f"{pool.name!r} is the name of another kind of nodes")
    if pool.provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        hint = did_you_mean(pool.provider, PROVIDERS)
        _wrong(f"{key}.provider", f"there is no provider {pool.provider!r}; known: {known}{hint}")
    for name, least in (
        ("price_per_hour", 0.0),
        ("boot", 0.0),
        ("minimum_billing", 0.0),
        ("leave", 0.0),
        ("timeout", 0.1),
        ("give_up", 1.0),
    ):
        if not least <= getattr(pool, name) < math.inf:
            _wrong(f"{key}.{name}", f"{getattr(pool, name):g} is less than {least:g}")
    if pool.speed is not None and not 0 < pool.speed < math.inf:
        _wrong(f"{key}.speed", "must be above 0")
    for name, most in (("gpus", 64), ("most", 10_000)):
        if not 1 <= getattr(pool, name) <= most:
            _wrong(f"{key}.{name}", f"must be between 1 and {most}")
    _keyed(f"{key}.available_until", lambda: pool.until_s)
    _check_provider(pool, key)


def _check_provider(pool: PoolConfig, key: str) -> None:
    """The keys that each provider needs, and the keys that only another one uses."""
    for provider, name in ((EXEC, "program"), (STATIC, "hosts"), (SLURM, "pilot")):
        if pool.provider == provider and not getattr(pool, name):
            _wrong(f"{key}.{name}", f"missing: provider {provider!r} needs it")
        if pool.provider != provider and getattr(pool, name):
            _wrong(f"{key}.{name}", f"means something with provider = {provider!r} only")
    for name in ("pilot_config", "sbatch", "token_dir"):
        if pool.provider != SLURM and getattr(pool, name):
            _wrong(f"{key}.{name}", f"means something with provider = {SLURM!r} only")
    if pool.token_dir and not pool.token_dir.startswith("/"):
        _wrong(f"{key}.token_dir", f"{pool.token_dir!r} is not absolute")
    if pool.provider == EXEC and not pool.program.startswith("/"):
        _wrong(f"{key}.program", f"{pool.program!r} is not absolute")
    if pool.provider == STATIC and pool.most > len(pool.hosts):
        _wrong(f"{key}.most", f"is more than the {len(pool.hosts)} hosts")


def _keyed(key: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ValueError as error:
        _wrong(key, str(error))


def _wrong(key: str, what: str) -> NoReturn:
    raise ConfigError(f"{key}: {what}", key=key)


def speed_of(pool: PoolConfig, speeds: TypeSpeeds) -> float:
    """Of one of its GPUs."""
    return speeds.of(pool.gpu_type) if pool.speed is None else pool.speed


def node_type(pool: PoolConfig) -> NodeType:
    """The hardware of one of its machines."""
    from dlq_master.policy.priced.catalogue import NodeType

    return NodeType(
        pool.name,
        pool.gpu_type,
        pool.gpus,
        pool.price_per_hour,
        float(pool.boot),
        float(pool.minimum_billing),
        pool.until_s,
    )
