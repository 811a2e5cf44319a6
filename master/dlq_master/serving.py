"""The composition root: the one place where the real parts of a running master are built."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlq_common.clock import Clock, SteadyClock
from dlq_common.daemon.collector import Collector, collecting_later, keep_what_is_loaded
from dlq_common.daemon.logs import get_logger, keep_time_by
from dlq_common.daemon.pinned import pin
from dlq_common.daemon.resident import SETTLED_S, give_back
from dlq_common.daemon.systemd import Service, passed_sockets
from dlq_common.errors import DlqError
from dlq_common.identity.join_token import JoinTokenText
from dlq_common.identity.pki import fingerprint
from dlq_common.ids import RandomIds
from dlq_common.text.units import MINUTE
from dlq_master.control.composition.starting import Losses, start
from dlq_master.control.composition.state import State
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import SHIPPING_STATUS, MasterConfig
from dlq_master.control.forecast.forecasts import PAST_KEPT, ForecastKeeper
from dlq_master.control.forecast.twin_process import TwinProcess
from dlq_master.control.jobs.state import window_of
from dlq_master.control.loans.loan_auto import Follower
from dlq_master.control.loop.failpoints import Failpoints, OnPurpose
from dlq_master.control.loop.incidents import HandlerFailed
from dlq_master.control.loop.loop import Loop
from dlq_master.control.loop.meter import Meter
from dlq_master.control.loop.preload import preload
from dlq_master.control.loop.ticks import PERIODS_S, start_metronome
from dlq_master.control.nodes.state import MasterBoots
from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.read_model.ports import Foresight
from dlq_master.control.stimuli import PlanMade
from dlq_master.databases import audit_key, database_of, open_store
from dlq_master.model.late import load_numbers
from dlq_master.planner.process import PlannerProcess
from dlq_master.policy.priced.names import PROGRAMS
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.agents.step_keeper import StepStore
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.audit.chain import Head
from dlq_master.rpc.audit.writer import KnownHead
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.rpc.people.authorities import Authorities, seed_of, system_of
from dlq_master.rpc.people.authorities import read_authority as read_authority
from dlq_master.rpc.people.groups import Groups
from dlq_master.rpc.people.host_accounts import HostAccounts
from dlq_master.rpc.people.login_broker import BrokerSettings, LoginBroker
from dlq_master.rpc.server import MasterServer, ServerSettings
from dlq_master.start_clock import anchor, former_boot, start_clock, this_boot
from dlq_master.store.batch import CA_FILES, HOOKS_SEEN, Batch, Loaded, PastJobs
from dlq_master.store.committing import BatchWriter
from dlq_master.store.reader import StoreReader
from dlq_master.store.sqlite.halves import Writer
from dlq_master.store.sqlite.open import EarlyCheck

if TYPE_CHECKING:
    from dlq_master.relay.child import RelayChild
    from dlq_master.rpc.specs.hooked import SubmitHooks
    from dlq_master.shipping.child import ShippingChild
    from dlq_master.taking_part import Leadership

STOP_GRACE_S = 5.0
MOST_FAULTS = 20
# The name of the login broker's socket in dlq-login.socket, when systemd holds it.
LOGIN_SOCKET = "login"
# Not imported here: it is another process, and the master needs it for nothing.
GRANTS_EVERY_S = 30.0
TWIN = (sys.executable, "-P", "-m", "dlq_simulator.twin")


def serve_until_stopped(config: MasterConfig, early: EarlyCheck | None) -> None:
    """Serve, and begin anew from the disk after a fault of a handler, with the faulty stimulus put
    aside. A master that fails on ever other things, MOST_FAULTS within a minute, ends with a
    DlqError.
    """
    pin()
    clock, faults = SteadyClock(), deque[float](maxlen=MOST_FAULTS)
    stepped_down, staggers = False, Failpoints(config.debug.failpoint).staggers
    while True:
        try:
            stepped_down = asyncio.run(serve(config, early, stepped_down=stepped_down))
            if not stepped_down:
                return
        except HandlerFailed as failed:
            told = failed.incident
            get_logger("master").critical(
                "handler_failed",
                incident=told.incident_id,
                stimulus=told.kind,
                sender=told.sender,
                cause=told.words,
                where=told.where,
                failures=told.failures,
            )
            if staggers and isinstance(failed.__cause__, OnPurpose):
                continue
            faults.append(clock.boottime_s())
            if len(faults) == MOST_FAULTS and faults[-1] - faults[0] < MINUTE:
                raise DlqError(f"the master failed {MOST_FAULTS} times within a minute") from failed


async def serve(
    config: MasterConfig, early: EarlyCheck | None = None, *, stepped_down: bool = False
) -> bool:
    """Build the master, serve until a signal, leave in order. Raises CommitFailed when one did.
    Return whether it has stepped down: then it stands by from now on.

    A start that fails, for example on a taken port, closes every part already made, the last one
    first.
    """
    async with AsyncExitStack() as leaving:
        epoch, leads = await _serve(config, leaving, early, stepped_down)
    get_logger("master").info("master_stopped", epoch=epoch)
    return leads is not None and leads.stands_by_again


async def _serve(
    config: MasterConfig, leaving: AsyncExitStack, early: EarlyCheck | None, stepped_down: bool
) -> tuple[int, Leadership | None]:
    preload()
    leaving.enter_context(collecting_later())
    passed = passed_sockets(os.environ)
    state_dir = config.cluster.state_dir
    authority = Authorities(state_dir, config.cluster.name)
    _refuse_superseded(config)
    service = Service.of(os.environ, SteadyClock())
    leads, stopped = await _part(config, authority, service, leaving, stepped_down)
    if stopped:
        return 0, None
    writer, reader = open_store(config, leaving, early, leads)
    loaded = _rows(config, writer, reader, leads)
    authority, shared = _read_anew(config, authority, leads, loaded.meta)
    boot_id = this_boot(os.environ)
    clock = start_clock(loaded.meta, loaded.last_time_s, state_dir, boot_id)
    keep_time_by(clock)
    known = KnownHead(Head.read(loaded.meta.get(audit_key(config))), loaded.audit_owed)
    audit = Audit(state_dir / "audit.jsonl", clock, known=known)
    leaving.push_async_callback(asyncio.to_thread, audit.close)
    writer.tell_of(audit.writer, audit_key(config))
    losses = Losses(writer.lost, audit.writer.loss)
    for kind, facts, cause in losses.events():
        get_logger("master").error(kind, cause=cause, **facts)
    ahead = None if leads is None else leads.built_ahead(loaded)
    state, first = start(config, loaded, clock.now_s(), losses, ahead)
    del ahead
    first.meta |= anchor(clock, boot_id)
    state.nodes.instances.boots = MasterBoots(former_boot(loaded.meta), boot_id)
    _begin_to_follow(config, state, first)
    state.machines.seed = seed_of(state_dir, "pools")
    if config.pools or state.cluster.due:
        load_numbers()  # no turn has to wait for it
    del loaded
    keep_what_is_loaded()
    first.meta |= shared
    await writer.commit(first)
    authority.noted(shared.get(CA_FILES))
    shipping = await _ship(config, state.epoch, authority, writer, leaving)
    periods_s = {
        **PERIODS_S,
        "backup": float(config.store.backup_every),
        "compact": float(config.retention.compact_every),
    }
    sessions = Sessions(
        CheckpointPlaces(str(config.jobs.checkpoint_root), seed_of(state_dir, "checkpoints")),
        leads,
    )
    sessions.database = database_of(config, writer)
    meter, collector = Meter(config.log.slow_turn), Collector(clock.boottime_s)
    soon = asyncio.get_running_loop().call_soon

    def progressed() -> None:
        service.alive()
        soon(collector.turned)  # in a round of its own, where the turn has taken its time

    twin = TwinProcess(TWIN, clock)
    leaving.push_async_callback(twin.stop)
    ended_after = max(0, state.jobs.next_id - PAST_KEPT)
    past = partial(reader.past_jobs, PastJobs(), ended_after, PAST_KEPT)
    forecasts = ForecastKeeper(state, config.twin, twin, clock, past)
    loop = Loop(
        state=state,
        wiring=WIRING,
        clock=clock,
        store=writer,
        records=reader,
        transport=sessions,
        failpoints=Failpoints(config.debug.failpoint),
        state_dir=state_dir,
        periods_s=periods_s,
        progressed=progressed,
        foreseen=forecasts,
        meter=meter,
        leads=leads,
    )
    planner = PlannerProcess(
        lambda answer: loop.tell(PlanMade(answer)),
        limit_s=config.scheduler.plan_limit,
        failed=_say_failed,
    )
    leaving.push_async_callback(planner.close)
    state.placement.offloaded.planner = planner
    if config.pools and config.renting.policy in PROGRAMS:
        solver = PlannerProcess(
            state.machines.solving.heard,
            limit_s=config.scheduler.plan_limit,
            least_s=config.scheduler.plan_limit,
            failed=_say_failed,
        )
        leaving.push_async_callback(solver.close)
        state.machines.solving.process = solver
    steps = StepStore(writer.put_steps, reader.steps)
    writer.lost_line = partial(_later, asyncio.get_running_loop(), loop.fail)
    stop: Callable[[], None] = loop.stop
    if leads is not None:
        leads.ended_by(loop.stop)
        stop = leads.told_to_stop
    hooks = _hooks(config, reader, clock, leaving)
    server = _server(
        config, loop, sessions, authority, audit, clock, forecasts, steps, meter, leads, hooks
    )
    _make_desk(config, state, loop, server, authority, audit, leaving)
    listening = passed.get(LOGIN_SOCKET)
    groups = Groups(loop, HostAccounts(), server.open_calls.look, state_dir=state_dir)
    server.door.refusal, server.door.looks = groups.refusal, groups.due
    leaving.callback(groups.close)
    broker = _broker(config, server.advertised, loop, authority, audit, clock, groups, listening)
    if config.listen.metrics:
        # A dozen modules, and most masters serve no metrics.
        from dlq_master.rpc.metrics.assembly import metrics_server
        from dlq_master.rpc.metrics.host import HostMetrics

        host = HostMetrics(state_dir, clock, audit.writer, authority, losses)
        metrics = metrics_server(config, loop, meter, host, clock, server, forecasts, authority)
    else:
        metrics = None
    turning = asyncio.create_task(loop.run())
    leaving.push_async_callback(_end, turning)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    metronome = start_metronome(loop.tell, periods_s)
    leaving.callback(metronome.shutdown, wait=False)
    leaving.push_async_callback(server.stop, STOP_GRACE_S)
    await server.start()
    leaving.push_async_callback(broker.stop)
    await broker.start()
    if metrics is not None:
        leaving.push_async_callback(metrics.stop)
        await metrics.start()
    _let_check(config, state)
    follower = Follower(config.loans, loop, state.loans, clock, RandomIds(clock))
    told = _told_hooks(config, state, hooks, loop)
    _load_grants(state)
    granted = _watch_grants(loop, clock, server.open_calls.look)
    always = (forecasts.run(), collector.look_at_all(), follower.run(), groups.run(), granted)
    for beside in (*always, *told):
        leaving.push_async_callback(_end, asyncio.create_task(beside))
    _say_serving(state, server)
    leaving.callback(service.stopping)
    service.ready(f"serving {state.config.cluster.name} at {server.advertised}")
    given_back = asyncio.get_running_loop().call_later(SETTLED_S, give_back)
    leaving.callback(given_back.cancel)
    if shipping is not None:
        following = asyncio.create_task(shipping.run(loop.stop))
        leaving.push_async_callback(_end, following)
    await turning
    await _left(shipping, leads, writer)
    return state.epoch, leads


def _let_check(config: MasterConfig, state: State) -> None:
    """Few clusters check their nodes: the others do not load it."""
    if config.checks.user:
        from dlq_master.checks.watching import room_of
        from dlq_master.rpc.specs.checks import submission

        state.nodes.checks.room = room_of(partial(submission, config.checks))


async def _part(
    config: MasterConfig,
    authority: Authorities,
    service: Service,
    leaving: AsyncExitStack,
    stepped_down: bool,
) -> tuple[Leadership | None, bool]:
    """The lease, where there are several masters; and whether this one was told to stop before."""
    if not config.leader.masters:
        return None, False
    from dlq_master.taking_part import lead

    leads = await lead(config, authority, service, leaving, stepped_down=stepped_down)
    return leads, leads is None


def _read_anew(
    config: MasterConfig, authority: Authorities, leads: Leadership | None, meta: Mapping[str, str]
) -> tuple[Authorities, dict[str, str]]:
    """The CA as another master has left it, and what is to be stored of it for others."""
    if leads is None:
        return authority, {}
    from dlq_master.rpc.people.shared_authority import SharedAuthority

    shared = SharedAuthority(config.cluster.state_dir)
    shared.take(meta)
    authority = Authorities(config.cluster.state_dir, config.cluster.name)
    authority.shared = shared
    word = shared.news(meta)
    return authority, {} if word is None else {CA_FILES: word}


def _rows(
    config: MasterConfig, writer: BatchWriter, reader: StoreReader, leads: Leadership | None
) -> Loaded:
    """All that a start needs: a standby has most of it already."""
    warm = None if leads is None else leads.rows_taken(writer)
    return reader.load(window_of(config)) if warm is None else warm


def _later(
    here: asyncio.AbstractEventLoop, fail: Callable[[BaseException], None], error: BaseException
) -> None:
    with suppress(RuntimeError):  # the loop has ended
        here.call_soon_threadsafe(fail, error)


async def _left(
    shipping: ShippingChild | None, leads: Leadership | None, writer: BatchWriter
) -> None:
    """The loop has ended."""
    if shipping is not None:
        shipping.refuse_superseded()
    if leads is not None:  # nothing is written any more: another master may lead at once
        await asyncio.to_thread(writer.close)
        await leads.release()


def _refuse_superseded(config: MasterConfig) -> None:
    if config.shipping.is_on:
        from dlq_master.shipping.child import refuse_superseded

        refuse_superseded(config.cluster.state_dir)


async def _ship(
    config: MasterConfig,
    epoch: int,
    authority: Authorities,
    writer: BatchWriter,
    leaving: AsyncExitStack,
) -> ShippingChild | None:
    """The shipping, where it is configured; few masters need its modules."""
    if not config.shipping.is_on:
        status = config.cluster.state_dir / SHIPPING_STATUS
        status.unlink(missing_ok=True)  # of a former configuration
        return None
    from dlq_master.shipping.child import ShippingChild

    shipping = ShippingChild(
        config,
        epoch,
        lambda: authority.present,
        system_of(config.cluster.state_dir, authority.present),
    )
    leaving.push_async_callback(shipping.stop)  # when no more commits come, and before the writer
    if isinstance(writer, Writer):  # else `check_store` has refused it
        await shipping.follow(writer)
    return shipping


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel it, and wait until it is over, however it ends."""
    task.cancel()
    await asyncio.wait([task])


def _server(
    config: MasterConfig,
    loop: Loop,
    sessions: Sessions,
    authority: Authorities,
    audit: Audit,
    clock: Clock,
    foresight: Foresight,
    steps: StepStore,
    meter: Meter,
    leads: Leadership | None,
    hooks: SubmitHooks | None,
) -> MasterServer:
    settings = ServerSettings(
        api_address=config.listen.api,
        join_address=config.listen.join,
        advertise=config.listen.advertise,
        masters=config.leader.masters,
        version=version("dlq"),
        web_may_act_for=config.identity.web_may_act_for,
        web_address=config.identity.web_address,
        web_certificates_s=config.identity.web_certificates,
        relay_address=config.relay.listen,
        relay_advertise=config.relay.advertise,
        group_grants=GroupGrants(config.identity.group_roles, config.identity.group_teams),
    )
    return MasterServer(
        settings,
        control=loop,
        sessions=sessions,
        authority=authority,
        audit=audit,
        clock=clock,
        ids=RandomIds(clock),
        foresight=foresight,
        steps=steps,
        meter=meter,
        lead=leads,
        hooks=hooks,
        relay=_relay(config),
        failpoints=Failpoints(config.debug.failpoint),
    )


def _hooks(
    config: MasterConfig, reader: StoreReader, clock: Clock, leaving: AsyncExitStack
) -> SubmitHooks | None:
    """The hooks of the operator; few masters have any."""
    if not config.hooks.file:
        return None
    from dlq_master.hooks.desk import desk_of
    from dlq_master.rpc.specs.hooked import SubmitHooks

    desk = desk_of(config, clock, lambda key, request: reader.request(key, request) is not None)
    leaving.push_async_callback(desk.close)
    return SubmitHooks(desk)


def _begin_to_follow(config: MasterConfig, state: State, first: Batch) -> None:
    """Hooks of attempts that are new are told what comes from now on."""
    journal, follows = state.journal, config.hooks.follows
    if follows != (journal.hooks_seen >= 0):
        journal.hooks_seen = journal.next_sequence - 1 if follows else -1
        first.meta[HOOKS_SEEN] = str(journal.hooks_seen)


def _told_hooks(
    config: MasterConfig, state: State, hooks: SubmitHooks | None, loop: Loop
) -> Iterator[Coroutine[Any, Any, None]]:
    """Tells hooks the starts and ends of attempts, where they want to know."""
    if hooks is not None and config.hooks.follows:
        from dlq_master.hooks.following import HookFollower

        yield HookFollower(hooks.desk, loop, state.journal.hooks_seen).run()


def _load_grants(state: State) -> None:
    """Load the modules for guests, where there are grants: in the version that serves."""
    if state.people.grants or state.people.held_grants:
        from dlq_master.rpc.cluster import grant_service as _service
        from dlq_master.rpc.people import guests as _guests

        get_logger("master").info("grants_loaded", rooms=(_service.__name__, _guests.__name__))


async def _watch_grants(loop: Loop, clock: Clock, lost: Callable[[], object]) -> None:
    """Close grants that are spent or have ended, and open those with a new period."""
    while True:
        if loop.published.grants:
            from dlq_master.rpc.people.grant_books import look  # most masters have none

            try:
                await look(loop, clock.now_s, lost)
            except DlqError as error:  # at the next look
                get_logger("master").warning("grants_not_looked_at", cause=error.what)
        await asyncio.sleep(GRANTS_EVERY_S)


def _relay(config: MasterConfig) -> type[RelayChild] | None:
    """The keeper of the relay, where there is to be one."""
    if config.relay.listen == "off":
        return None
    from dlq_master.relay.child import RelayChild

    return RelayChild


def _make_desk(
    config: MasterConfig,
    state: State,
    loop: Loop,
    server: MasterServer,
    authority: Authorities,
    audit: Audit,
    leaving: AsyncExitStack,
) -> None:
    """The provider desk of machines, and the join tokens of their agents. Most masters have no
    pool, and no machine of a former one.
    """
    if not config.pools and not state.machines.fleet:
        return
    from dlq_master.providers.desk import ProviderDesk

    desk = ProviderDesk(
        _pools(config) if config.pools else (),
        loop.tell,
        join_address=server.advertised_join,
        token_of=lambda token_id, secret: JoinTokenText(
            token_id, secret, fingerprint(authority.pinned_pem())
        ).text(),
        audited=lambda verb, machine, outcome: audit.record(None, verb, machine, outcome),
    )
    state.machines.desk = desk
    leaving.push_async_callback(desk.close)


def _pools(config: MasterConfig) -> tuple[PoolConfig, ...]:
    """Pools with the accounts of their programs; few masters have any."""
    from dlq_master.providers.accounts import with_accounts

    return with_accounts(config.pools, config.renting, listens=config.listen.api)


def _broker(
    config: MasterConfig,
    api_address: str,
    loop: Loop,
    authority: Authorities,
    audit: Audit,
    clock: Clock,
    groups: Groups,
    listening: socket.socket | None,
) -> LoginBroker:
    settings = BrokerSettings(
        socket_path=Path(config.listen.login_socket or config.cluster.state_dir / "login.sock"),
        api_address=api_address,
        auto_users=config.identity.auto_users,
    )
    return LoginBroker(settings, loop, authority, clock, audit, groups, listening)


def _say_failed(why: str) -> None:
    get_logger("master.planner").error("planner_failed", cause=why)


def _say_serving(state: State, server: MasterServer) -> None:
    get_logger("master").info(
        "master_serving",
        api=server.advertised,
        join_port=server.join_port,
        epoch=state.epoch,
        jobs=len(state.cluster.jobs),
        nodes=len(state.cluster.nodes),
        policy=state.placement.chosen.policy,
    )
