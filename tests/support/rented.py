"""A master without sockets, beside which machines can be rented from a fake provider."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dlq_common.daemon.config import Seconds
from dlq_common.errors import DlqError
from dlq_master.control.config import MasterConfig
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.control.stimuli import AskedLateness
from dlq_master.control.stimuli.machines import Act
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.providers.desk import ProviderDesk
from support.fake_provider import FAKE, FakeProvider
from support.lent_servers import Server
from support.master_harness import Master, config_of

HOUR_S = 3600.0
MADE: list[Master] = []  # for whoever closes them
SPOT = PoolConfig("spot", FAKE, "H100", 4, 10.0, most=2, boot=Seconds(20.0))


@dataclass
class InlineDesk:
    """Asks when the test says so: `serve`. What it was asked and has not done dies with its
    master.
    """

    desk: ProviderDesk
    master: Master
    acts: list[Act] = field(default_factory=list)

    def ask(self, act: Act) -> None:
        self.acts.append(act)

    def serve(self) -> list[str]:
        """Do what is asked, and tell; the verbs."""
        acts, self.acts = self.acts, []
        for act in acts:
            self.master.turn(self.desk.answer(act))
        return [act.verb.value for act in acts]


class RentedHost(Server):
    """The agent of a machine of pool spot."""

    def facts(self) -> Registered:
        return replace(super().facts(), pool=NodePool.PRICED)


class Site:
    """A master with one own node (`own` GPUs; 0: none), and pools whose provider is the fake."""

    def __init__(
        self,
        *pools: PoolConfig,
        renting: RentingConfig | None = None,
        own: int = 0,
        failpoints: Failpoints | None = None,
        policy: str = "best-effort",
        **settings: str,
    ) -> None:
        self.provider = FakeProvider()
        self.pools = pools or (SPOT,)
        config: MasterConfig = replace(
            config_of(policy, **settings), pools=self.pools, renting=renting or RentingConfig()
        )
        self.master = Master(config, failpoints=failpoints)
        MADE.append(self.master)
        self.hosts: dict[str, RentedHost] = {}
        self.attach()
        self.own: Server | None = None
        if own:
            self.own = OwnNode(self.master, NodeId("own01"), gpus=own)
            self.own.hello()

    def attach(self) -> None:
        """The desk of a master that has just started."""
        providers = {pool.name: self.provider for pool in self.pools}
        desk = ProviderDesk(
            self.pools,
            lambda _stimulus: None,
            join_address="head:7321",
            token_of=lambda token_id, secret: f"{token_id}.{secret}",
            providers=providers,
        )
        self.desk = InlineDesk(desk, self.master)
        self.master.state.machines.desk = self.desk
        self.master.state.machines.seed = b"seed"

    def restart(self) -> None:
        """kill -9 of the master; what was asked of providers and not done is gone."""
        self.master.restart()
        self.attach()

    def agents(self) -> tuple[Server, ...]:
        """Every node that there is."""
        return (*self.hosts.values(), *([self.own] if self.own else []))

    def crashed(self) -> None:
        """The master died in the middle of something; the next one is up, and its agents have come
        back to it.
        """
        self.master.crashed()
        self.attach()
        for agent in self.agents():
            agent.session_id = None
            agent.inbox.clear()
            agent.looks.clear()
            if agent.node_id in self.master.state.cluster.nodes:
                agent.hello()

    def submit(
        self,
        gpus: int = 4,
        *,
        due_s: float = HOUR_S,
        weight: float = 100.0,
        lasts_s: float = HOUR_S,
        **more: Any,
    ) -> JobId:
        """A job that costs `weight` an hour once it is late."""
        lateness = AskedLateness(weight / HOUR_S, after_s=due_s)
        return self.master.submit(gpus, lateness=lateness, run_estimate_s=lasts_s, **more).job_id

    def tick(self, seconds: float = 1.0, *, serve: bool = True) -> None:
        """Time passes, all agents are heard, and providers do what they are asked."""
        self.master.clock.advance(seconds)
        for agent in self.agents():
            if agent.session_id is not None and agent.node_id in self.master.state.cluster.nodes:
                agent.heartbeat()
        self.master.tick()
        if serve:
            self.desk.serve()

    def machines(self) -> Fleet:
        """All, by name."""
        return self.master.state.machines.fleet

    def only(self) -> Machine:
        """The one that there is."""
        (machine,) = self.machines().values()
        return machine

    def boot(self, machine: Machine | None = None, **changes: Any) -> RentedHost:
        """Its agent says hello, as the machine that was asked for; None: the first that there
        is.
        """
        machine = machine or next(one for one in self.machines().values() if one.open)
        host = RentedHost(
            self.master, machine.node_id, pool_name=machine.pool, instance_id=machine.instance_id
        )
        for name, value in changes.items():
            setattr(host, name, value)
        host.hello()
        self.hosts[machine.node_id] = host
        return host

    def refusal(self, **changes: Any) -> DlqError | None:
        """What its agent is told; None: it is welcome."""
        try:
            self.boot(**changes)
        except DlqError as error:
            return error
        return None


class OwnNode(Server):
    """A node of the cluster's own."""

    def facts(self) -> Registered:
        return replace(super().facts(), pool=NodePool.TRAINING)
