"""The running agent: builds the real parts, calls the core, and ends without stopping jobs.

A runtime that the configuration does not name is not imported, to spare memory.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.resident import SETTLED_S, give_back
from dlq_common.daemon.systemd import Service
from dlq_common.errors import ConfigError
from dlq_common.ids import Ids
from dlq_nodeagent.cgroups.detect import detect, node_group
from dlq_nodeagent.cgroups.port import CgroupTree
from dlq_nodeagent.cgroups.trees import NoTree
from dlq_nodeagent.cgroups.trial import tried
from dlq_nodeagent.config import AgentConfig, check_master_address, node_address
from dlq_nodeagent.core import AgentCore
from dlq_nodeagent.devices.choose import open_devices
from dlq_nodeagent.devices.cores import divide, host_cores
from dlq_nodeagent.devices.fake import FakeDevices
from dlq_nodeagent.devices.host import HostFacts, read_host_facts
from dlq_nodeagent.devices.job_mapping import JobMapping
from dlq_nodeagent.devices.nodes import own_gpus, without_node
from dlq_nodeagent.devices.port import Devices
from dlq_nodeagent.devices.watch import GpuWatch
from dlq_nodeagent.execs.serving import ExecServer
from dlq_nodeagent.launch.launching import Launching
from dlq_nodeagent.launch.programs import install_program
from dlq_nodeagent.launch.steps import install_stand_ins
from dlq_nodeagent.line import wire
from dlq_nodeagent.line.channel import Channels
from dlq_nodeagent.line.identity import RenewalWish, keep_renewed, stored_address
from dlq_nodeagent.line.relay import LogRelay
from dlq_nodeagent.line.samples import SampleSender
from dlq_nodeagent.line.session import GrpcTransport
from dlq_nodeagent.line.uplink import Contact
from dlq_nodeagent.model.port import Runtime
from dlq_nodeagent.profiling.injecting import Injecting, copy_parts
from dlq_nodeagent.profiling.places import Places, Station
from dlq_nodeagent.runtimes.podman.prepare import secrets_of
from dlq_nodeagent.runtimes.process.leftovers import Leftovers, finder
from dlq_nodeagent.runtimes.process.runtime import ProcessRuntime
from dlq_nodeagent.shim.binary import (
    INIT_NAME,
    OUTPUT_NAME,
    STDIN_NAME,
    TASKS_NAME,
    ensure_shim,
    shim_path,
)
from dlq_nodeagent.shim.contact import ContactFile
from dlq_nodeagent.state.disk_watch import DiskWatch
from dlq_nodeagent.state.instance import open_instance, read_machine_id
from dlq_nodeagent.state.journal import FileJournal
from dlq_nodeagent.state.state_dir import refuse_if_foreign
from dlq_nodeagent.suspension.suspender import open_suspender
from dlq_nodeagent.workshop import Workshop
from dlq_profiler.injection import built

if TYPE_CHECKING:
    from dlq_nodeagent.podman_parts import PodmanParts
    from dlq_nodeagent.runtimes.fake.runtime import FakeHost

# The shim and jobs of other users pass through it by full path; other users cannot list it.
_STATE_MODE = 0o711
_LOCK_S = 1.0  # between looks at the lock

log = get_logger("nodeagent.daemon")


@dataclass(slots=True)
class _Parts:
    node_id: str
    core: AgentCore
    runtime: Runtime
    transport: GrpcTransport
    workshop: Workshop
    relay: LogRelay
    samples: SampleSender
    execs: ExecServer
    channels: Channels
    cgroups: CgroupTree
    podman: PodmanParts | None
    gpus: GpuWatch
    mapping: JobMapping | None


async def run_agent(
    config: AgentConfig, *, channels: Channels, clock: Clock, ids: Ids, version: str
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises ConfigError, DevicesUnavailable,
    ShimMissing before anything is started. Jobs outlive it in every case.
    """
    state_dir = config.node.state_dir
    prepare_state_dir(state_dir)
    wake = asyncio.Event()
    service = Service.of(os.environ, clock)
    with _sole_agent(state_dir) as lock:
        parts = _build(config, channels, clock=clock, ids=ids, version=version, wake=wake)
        holds = partial(_holds, lock, state_dir)
        return await _serve(parts, clock, wake, service, holds, config.reconnect.jitter)


def prepare_state_dir(state_dir: Path) -> None:
    """Make the agent's own directories. ConfigError when they cannot be used."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        refuse_if_foreign(state_dir)
        state_dir.chmod(_STATE_MODE)
        scripts = state_dir / "scripts"
        scripts.mkdir(exist_ok=True)
        scripts.chmod(_STATE_MODE)
        install_stand_ins(state_dir)
        for name in (TASKS_NAME, OUTPUT_NAME, STDIN_NAME, INIT_NAME):
            install_program(state_dir, shim_path().with_name(name))
        copy_parts(_profiler_copies(state_dir), built())
    except OSError as error:
        raise ConfigError(f"{state_dir}: {error.strerror}", key="node.state_dir") from None


def _profiler_copies(state_dir: Path) -> Path:
    return state_dir / "profiler"


def channels_of(config: AgentConfig) -> Channels:
    """How this node reaches its master. ConfigError when it has not joined one."""
    address = config.master.address or stored_address(config.node.state_dir)
    if not address:
        raise ConfigError("the master's address is not known", hint="join first", key="master")
    check_master_address(config, address)
    return Channels(address, config.node.state_dir)


def _build(
    config: AgentConfig,
    channels: Channels,
    *,
    clock: Clock,
    ids: Ids,
    version: str,
    wake: asyncio.Event,
) -> _Parts:
    state_dir, address = config.node.state_dir, channels.address
    who = channels.known()
    node_id = who.name
    devices = open_devices(config.node.devices, node_name=node_id)
    host = read_host_facts(agent_version=version)
    cores = divide(config.division, host_cores(), host.memory_bytes, len(devices.devices()))
    host = replace(
        host,
        cpu_count=config.node.cpus or host.cpu_count,
        memory_bytes=config.node.memory or host.memory_bytes,
    )
    instance = open_instance(state_dir, ids, read_machine_id(), host.boot_id)
    cgroups = _cgroups(config, node_id)
    if cores.count and cgroups.cores_open:
        log.warning("cores_not_exclusive", why=cgroups.cores_open)
    elif cores.count and not cores.host:
        log.warning("cores_not_exclusive", why="node.cpus names another number than the host has")
    runtime, contact, podman = _runtime(config, node_id, cgroups, clock)
    suspender = open_suspender(config.suspend, devices, config.gpus.free_below, clock)
    facts = wire.node_facts(
        host,
        devices.devices(),
        address=node_address(config, address),
        root_jobs=config.root_jobs,
        pool=config.node.pool,
        instance_id=config.node.instance,
        runtimes=() if podman is None else (runtime.name,),
        cores=cores,
        suspend_bytes=0 if suspender.why_not else config.suspend.memory,
    )
    transport = GrpcTransport(channels, facts, wake=wake.set)
    relay = LogRelay(channels, runtime)
    execs = ExecServer(channels, runtime, state_dir, config.jobs.command_kept)
    samples = SampleSender(channels, clock)
    places = Places.of(state_dir)
    launching = Launching(
        rules=config.rules(),
        devices=devices.devices(),
        job_files=runtime.job_files,
        now_s=clock.now_s,
        cluster=who.cluster,
        containers=None if podman is None else podman.containers,
        injecting=Injecting(
            places=places, copies=_profiler_copies(state_dir), allowed=config.jobs.profile
        ),
        cores=cores,
        devices_for=own_gpus if _separates(config, devices, cgroups) else lambda own: (),
    )
    workshop = Workshop(
        clock=clock,
        devices=devices,
        launching=launching,
        station=Station(
            clock=clock,
            places=places,
            rights_of=launching.rights_of,
            devices_of=launching.devices_of,
            drops=os.getuid() == 0 and not config.root_jobs,
        ),
        send_log=relay.send,
        run_inside=execs.run,
        send_samples=samples.send,
        wake=wake.set,
        free_below_bytes=config.gpus.free_below,
    )
    workshop.suspender = suspender
    core = AgentCore(
        clock=clock,
        runtime=runtime,
        transport=transport,
        journal=_journal(state_dir),
        contact=contact,
        errands=workshop,
        rng=ids.rng(),
        boot_id=host.boot_id,
        settings=config.core(),
        instance=instance,
        leftovers=Leftovers(clock, finder(state_dir, cgroups)),
    )
    transport.listener = core
    workshop.answers = core
    _say_hello_to_the_log(config, node_id, address, host, devices, runtime)
    core.supervisor.moves.short = suspender.is_short
    if podman is not None:
        core.supervisor.secrets_of = partial(secrets_of, podman.containers.secrets)
    core.start()
    if podman is not None:
        podman.clearing.in_use = core.supervisor.images_in_use
        podman.clearing.start()
    if isinstance(devices, FakeDevices):
        devices.in_use = core.supervisor.gpus_in_use
    gpus = GpuWatch(
        clock=clock,
        devices=devices,
        in_use=core.supervisor.gpus_in_use,
        settings=config.gpus,
    )
    core.uplink.health = gpus.told
    disk = DiskWatch(clock=clock, path=state_dir, spare_bytes=config.disk.spare)
    core.uplink.disk = disk.told
    gpus.start()
    return _Parts(
        node_id=node_id,
        core=core,
        runtime=runtime,
        transport=transport,
        workshop=workshop,
        relay=relay,
        samples=samples,
        execs=execs,
        channels=channels,
        cgroups=cgroups,
        podman=podman,
        gpus=gpus,
        mapping=_mapping(config, clock),
    )


def _mapping(config: AgentConfig, clock: Clock) -> JobMapping | None:
    directory = config.gpus.job_mapping
    return JobMapping(Path(directory), clock) if directory else None


def _cgroups(config: AgentConfig, node_id: str) -> CgroupTree:
    if config.jobs.runtime == "fake":
        return NoTree("fake jobs have no processes")
    group = node_group(node_id, config.node.state_dir)
    try:
        cgroups = tried(detect(group, base=config.node.cgroup))
    except FileNotFoundError as error:
        raise ConfigError(f"node.cgroup: {error.strerror}", key="node.cgroup") from None
    if cgroups.mode == "none":
        log.warning("no_cgroups", why=cgroups.why)
    return cgroups


def _separates(config: AgentConfig, devices: Devices, cgroups: CgroupTree) -> bool:
    """Whether jobs are kept from other jobs' GPUs; ConfigError when they must and cannot be.

    Where a GPU has no node of its own, no rule is made: it would keep jobs from their own GPUs.
    """
    wanted = config.jobs.own_gpus
    why = cgroups.devices_open or without_node(devices.devices())
    if why and any(not device.virtual for device in devices.devices()) and wanted != "off":
        if wanted == "required":
            raise ConfigError(
                f"jobs cannot be kept from each other's GPUs: {why}",
                hint="run the agent as root, or set jobs.own_gpus to auto",
                key="jobs.own_gpus",
            )
        log.warning("gpus_not_exclusive", why=why)
    return not why and wanted != "off"


def _runtime(
    config: AgentConfig, node_id: str, cgroups: CgroupTree, clock: Clock
) -> tuple[Runtime, Contact, PodmanParts | None]:
    state_dir = config.node.state_dir
    path = state_dir / "contact"
    contact = ContactFile(path)
    if config.jobs.runtime == "fake":
        from dlq_nodeagent.runtimes.fake.runtime import FakeHost, FakeRuntime

        host = FakeHost(clock)
        return FakeRuntime(host), _FakeHostContact(contact, host), None
    if config.jobs.runtime == "podman":
        from dlq_nodeagent.podman_parts import build_podman

        group = node_group(node_id, state_dir)
        podman = build_podman(config, group=group, cgroups=cgroups, contact=path, clock=clock)
        return podman.runtime, contact, podman
    runtime = ProcessRuntime(
        state_dir=state_dir, contact=path, cgroups=cgroups, shim=ensure_shim(), clock=clock
    )
    return runtime, contact, None


def _journal(state_dir: Path) -> FileJournal:
    journal = FileJournal(state_dir / "journal")
    for path in journal.damaged():
        log.error("journal_file_damaged", path=str(path))
    return journal


async def _serve(
    parts: _Parts,
    clock: Clock,
    wake: asyncio.Event,
    service: Service,
    holds: Callable[[], bool],
    spread_s: float,
) -> int:
    stopped = asyncio.Event()
    failures: list[BaseException] = []
    _watch_loop(wake, stopped, failures)
    wish, transport = RenewalWish(parts.channels, spread_s), parts.transport
    transport.answered = wish.hear
    keeping = keep_renewed(parts.channels, clock, wish, transport.dial_anew)
    renewal = asyncio.get_running_loop().create_task(keeping)
    service.ready(f"node {parts.node_id}")
    asyncio.get_running_loop().call_later(SETTLED_S, give_back)
    try:
        with woken_by_ends(parts.runtime, wake):
            await _turn(parts, wake, stopped, service, holds)
        if not holds():
            failures.append(RuntimeError("the state directory was removed or replaced"))
    finally:
        service.stopping()
        renewal.cancel()
        parts.transport.close()
        await parts.execs.close()
        await parts.relay.close()
        await parts.samples.close()
        if parts.podman is not None:
            parts.podman.close()
        parts.workshop.close()
        parts.gpus.stop()
        if parts.mapping is not None:
            parts.mapping.close()
        parts.cgroups.remove()
    for failure in failures:
        log.critical("agent_failed", error=repr(failure), exc_info=failure)
    log.info("agent_stopped", failed=bool(failures))
    return 1 if failures else 0


async def _turn(
    parts: _Parts,
    wake: asyncio.Event,
    stopped: asyncio.Event,
    service: Service,
    holds: Callable[[], bool],
) -> None:
    """Turn until the agent is asked to stop, or its state belongs to another agent."""
    loop, core, mapping = asyncio.get_running_loop(), parts.core, parts.mapping
    look_s = 0.0
    while not stopped.is_set():
        if loop.time() >= look_s:
            if not holds():
                return
            look_s = loop.time() + _LOCK_S
        core.tick()
        if mapping is not None:
            mapping.show(core.supervisor.jobs_of_gpus())
        service.alive()
        pause_s = service.patience_s(max(core.pause_s(), 0.001))
        alarm = loop.call_later(pause_s, wake.set)  # a task for each pause would cost more
        await wake.wait()
        alarm.cancel()
        wake.clear()


@contextmanager
def woken_by_ends(runtime: Runtime, wake: asyncio.Event) -> Iterator[None]:
    """The end of a rank is seen at once, and not at the next tick."""
    loop, ends = asyncio.get_running_loop(), runtime.ends()
    if ends is None:
        yield
        return
    poll = select.poll()
    poll.register(ends, select.POLLIN)

    def wake_if_new() -> None:
        """The loop finds an end a second time before a tick has taken it, and tells of it after."""
        if poll.poll(0):
            wake.set()

    loop.add_reader(ends, wake_if_new)
    try:
        yield
    finally:
        loop.remove_reader(ends)


def _watch_loop(wake: asyncio.Event, stopped: asyncio.Event, failures: list[BaseException]) -> None:
    """Stop at a signal and at any uncaught exception, such as an unwritten journal."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        wake.set()

    def fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failures.append(context.get("exception") or RuntimeError(context["message"]))
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.set_exception_handler(fail)


@contextmanager
def _sole_agent(state_dir: Path) -> Iterator[int]:
    """Two agents over one state directory would start everything twice."""
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"another agent runs in {state_dir}", key="node.state_dir") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _holds(lock: int, state_dir: Path) -> bool:
    """Whether the lock that we hold is the one that another agent would find there."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(state_dir / "lock"))
    except OSError:
        return False


def _say_hello_to_the_log(
    config: AgentConfig,
    node_id: str,
    address: str,
    host: HostFacts,
    devices: Devices,
    runtime: Runtime,
) -> None:
    listed = devices.devices()
    log.info(
        "agent_started",
        node_id=node_id,
        master=address,
        boot_id=host.boot_id,
        runtime=runtime.name,
        run_as=config.run_as,
        gpus=len(listed),
        gpu_types=sorted({device.gpu_type for device in listed}),
        driver=devices.driver_version(),
    )
    if any(device.virtual for device in listed):
        log.warning("virtual_devices", devices=config.node.devices)
    if config.root_jobs:
        log.warning("jobs_run_as_root")


class _FakeHostContact:
    """The contact file, which fake jobs cannot read by themselves."""

    def __init__(self, contact: ContactFile, host: FakeHost) -> None:
        self._contact = contact
        self._host = host

    def boottime_s(self) -> float | None:
        return self._contact.boottime_s()

    def renew(self, boottime_s: float) -> None:
        self._contact.renew(boottime_s)
        self._host.renew_contact()
