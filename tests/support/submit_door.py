"""A whole submission but for gRPC: its passage, the loop, the database and the audit's file, in one
process, so that the Python calls of it can be counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Seconds
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_common.job_fields import table as _fields  # noqa: F401 - loaded before calls are counted
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import (
    ClusterConfig,
    JobsConfig,
    MasterConfig,
    NodesConfig,
    SchedulerConfig,
)
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.loop import Loop
from dlq_master.control.read_model.job_blocks import BlockNotes
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.calls.call_times import CallTimes
from dlq_master.rpc.calls.errors import Errors
from dlq_master.rpc.calls.limits import CallLimits
from dlq_master.rpc.calls.open_calls import OpenCalls
from dlq_master.rpc.calls.parts import MasterParts
from dlq_master.rpc.calls.passage import Passage
from dlq_master.rpc.calls.reads import Slices
from dlq_master.rpc.calls.surround import served
from dlq_master.rpc.methods import SERVICES
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.store.batch import Batch, MemoryWindow, User
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database, open_database, write
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.fake_clock import SeededIds

IN_FLIGHT = 8
NEVER_S = 1e9  # no tick comes in between


class _Context:
    """What a call asks of gRPC."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._certificate]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    def time_remaining(self) -> float:
        return 30.0


class SubmitDoor:
    """Calls of one user to a living loop."""

    def __init__(self, loop: Loop, methods: dict[str, Any], certificate: bytes) -> None:
        self.loop = loop
        self._methods = methods
        self._context = _Context(certificate)
        self._count = 0

    async def call(self, name: str, request: Any) -> Any:
        """The answer to one call, from bytes to bytes."""
        handler = self._methods[name]
        read = handler.request_deserializer(request.SerializeToString())
        return handler.response_serializer(await handler.unary_unary(read, self._context))

    async def submit_in_turn(self, count: int) -> None:
        """So many jobs, one after another: how they fall into turns is no chance."""
        await self.submit(count, in_flight=1)

    async def submit(self, count: int, *, brief: bool = False, in_flight: int = IN_FLIGHT) -> None:
        """So many jobs of the same kind, each in a call of its own."""
        left = iter(range(count))

        async def client() -> None:
            for _ in left:
                request = wire.SubmitJobRequest(request_id=self._key(), spec=self._spec())
                request.brief = brief
                await self.call("SubmitJob", request)

        await asyncio.gather(*(client() for _ in range(in_flight)))

    async def submit_brief(self, count: int) -> None:
        """The same, with brief answers."""
        await self.submit(count, brief=True)

    async def submit_many(self, count: int) -> None:
        """The same in one call."""
        specs = [self._spec() for _ in range(count)]
        request = wire.SubmitJobsRequest(request_id=self._key(), specs=specs)
        answer = await self.call("SubmitJobs", request)
        assert b"REFUS" not in answer

    async def submit_array(self, count: int) -> None:
        """An array of so many tasks."""
        spec = self._spec()
        spec.array.ranges.add(first=0, last=count - 1)
        await self.call("SubmitJob", wire.SubmitJobRequest(request_id=self._key(), spec=spec))

    def _key(self) -> str:
        self._count += 1
        return f"counted-{self._count}"

    def _spec(self) -> job_pb2.JobSpec:
        self._count += 1
        spec = job_pb2.JobSpec(
            command=["/bin/true", str(self._count)],
            environment={"DATA": "/shared/data", "RUN": "benchmark"},
            working_directory="/tmp",
        )
        spec.resources.gpu_count = 8
        return spec


@asynccontextmanager
async def submit_door(
    directory: Path, *, policy: str = "dlq", more: Batch | None = None
) -> AsyncIterator[SubmitDoor]:
    """A door to a master that has just started. `more` rows of its database, such as nodes; without
    them it has none.
    """
    database = directory / "dlq.db"
    create_database(database)
    rows = open_database(database)
    alice = User("alice", "user", 1001, 1001, (), 0.0)
    with write(rows):
        write_batch(rows, Batch(changes=put(USERS, [alice])))
        write_batch(rows, more or Batch())
    rows.close()
    clock = SteadyClock()
    config = MasterConfig(
        cluster=ClusterConfig(name="lab", state_dir=directory),
        jobs=JobsConfig(queued_per_user=10_000_000, submit_burst=10_000_000),
        scheduler=SchedulerConfig(policy=policy),
        nodes=NodesConfig(start_grace=Seconds(0.0)),
    )
    authority = Authority.create("lab", clock.now_s())
    made = new_key_and_csr("alice")
    certificate = authority.sign_user(made.request, "alice", Role.USER, clock.now_s())
    writer, reader = Writer(database), Reader(database)
    audit = Audit(directory / "audit.jsonl", clock)
    writer.tell_of(audit.writer)
    state, first = start(config, reader.load(MemoryWindow()), clock.now_s())
    await writer.commit(first)
    sessions = Sessions(CheckpointPlaces("/checkpoints", b"seed"))
    loop = Loop(
        state=state,
        wiring=WIRING,
        clock=clock,
        store=writer,
        records=reader,
        transport=sessions,
        failpoints=Failpoints(),
        state_dir=directory,
        periods_s={"leases": NEVER_S},
    )
    slices = Slices()
    door, limits = Door("lab", lambda: loop.published, clock, ("user",)), CallLimits(slices)
    times = CallTimes(clock.boottime_s)
    open_calls, errors = OpenCalls(door.check_member), Errors(SeededIds(7))
    passage = Passage(errors, audit, door.let_in, limits.enter, limits.leave, times, open_calls)
    used = {
        "control": loop,
        "clock": clock,
        "ids": SeededIds(7),
        "authority": authority,
        "sessions": sessions,
        "slices": slices,
        "rows": JobRows(),
        "notes": BlockNotes(),
        "check_member": door.check_member,
        "open_calls": open_calls,
        "record": audit.recorded,
    }
    # A submission has no use for the others.
    parts = MasterParts(**{field.name: used.get(field.name) for field in fields(MasterParts)})  # type: ignore[arg-type]
    service = "dlq.v1.JobService"
    handlers = served(service, SERVICES[service], passage, parts)
    methods = {
        name.rsplit("/", 1)[-1]: handler
        for name, handler in handlers._method_handlers.items()  # type: ignore[attr-defined]
    }
    turning = asyncio.create_task(loop.run())
    try:
        yield SubmitDoor(loop, methods, certificate)
    finally:
        loop.stop()
        await turning
        audit.close()
        reader.close()
        writer.close()
