"""Priced pools: the machines that may be rented, the rented ones, and giving them back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlq.v1 import pool_service_pb2 as wire
from dlq.v1.pool_service_pb2_grpc import PoolServiceServicer
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.loop.ports import Control, ReadModel
from dlq_master.control.machines.pool_config import PoolConfig
from dlq_master.control.machines.state import MachinesState
from dlq_master.control.stimuli.machines import StopMachines
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.specs.intake import words_of
from dlq_master.rpc.specs.spec import check_request_id

MOST_MACHINES = 4096
MOST_SHOWN = 50  # of those of a pool that are gone


class PoolService(PoolServiceServicer):
    """dlq.v1.PoolService. The door has looked at the role; here at what is asked."""

    def __init__(self, control: Control, clock: Clock) -> None:
        self._control = control
        self._clock = clock

    async def ListPools(
        self, request: wire.ListPoolsRequest, context: Context
    ) -> wire.ListPoolsResponse:
        read, now_s = self._control.published, self._clock.now_s()
        pools, renting, words = read.pools()
        name = words_of(request.name, "name")
        if name and name not in [pool.name for pool in pools]:
            raise NotFound(f"there is no pool {name}", kind="pool", id=name)
        machines = read.machines()
        here = MachinesState(Fleet(machines))
        answer = wire.ListPoolsResponse(
            pools=[
                _pool_message(
                    pool,
                    [_message(one, read, now_s) for one in _shown(machines, pool.name)],
                    words.get(pool.name, ""),
                )
                for pool in pools
                if name in ("", pool.name)
            ],
            cost_per_hour=here.per_hour(),
            day_cost=here.fleet.day_cost(now_s),
        )
        if renting.most_per_hour is not None:
            answer.most_per_hour = renting.most_per_hour
        if renting.most_per_day is not None:
            answer.most_per_day = renting.most_per_day
        return answer

    async def StopMachines(
        self, request: wire.StopMachinesRequest, context: Context
    ) -> wire.StopMachinesResponse:
        names = tuple(words_of(name, "machine_ids") for name in request.machine_ids)
        pool = words_of(request.pool, "pool")
        if bool(names) is bool(pool):
            raise InvalidRequest("name machines, or a pool", field="machine_ids")
        if len(names) > MOST_MACHINES:
            raise InvalidRequest(f"more than {MOST_MACHINES} machines", field="machine_ids")
        ask = StopMachines(
            caller=caller_of(context),
            request_id=check_request_id(request.request_id),
            machine_ids=names,
            pool=pool,
        )
        stopped = set(await self._control.ask(ask))
        read, now_s = self._control.published, self._clock.now_s()
        return wire.StopMachinesResponse(
            machines=[
                _message(one, read, now_s) for one in read.machines() if one.request_id in stopped
            ]
        )


def _shown(machines: Sequence[Machine], pool: str) -> list[Machine]:
    mine = [one for one in machines if one.pool == pool]
    gone = [one for one in mine if not one.open][-MOST_SHOWN:]
    return [one for one in mine if one.open or one in gone]


def _pool_message(pool: PoolConfig, machines: list[wire.Machine], words: str) -> wire.Pool:
    message = wire.Pool(
        name=pool.name,
        provider=pool.provider,
        gpu_type=pool.gpu_type,
        gpu_count=pool.gpus,
        price_per_hour=pool.price_per_hour,
        boot_duration=to_duration(pool.boot),
        minimum_billing_duration=to_duration(pool.minimum_billing),
        most_count=pool.most,
        closed_reason=words,
        machines=machines,
    )
    if pool.until_s < math.inf:
        message.available_until_time.CopyFrom(to_timestamp(pool.until_s))
    return message


def _message(one: Machine, read: ReadModel, now_s: float) -> wire.Machine:
    message = wire.Machine(
        request_id=one.request_id,
        pool=one.pool,
        node_id=one.node_id,
        instance_id=one.instance_id,
        state=one.state.value,
        since_time=to_timestamp(one.since_s),
        ask_time=to_timestamp(one.asked_s),
        fault=one.fault,
        cost=one.cost(now_s),
        attempts=[str(key) for key in read.attempts_on(one.node_id)] if one.open else [],
        job_ids=[str(job_id) for job_id in one.jobs],
    )
    if one.end_s is not None:
        message.end_time.CopyFrom(to_timestamp(one.end_s))
    return message
