"""Priced pools: machines that may be rented, rented machines, and giving them back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlq.v1 import pool_service_pb2 as wire
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.machines.state import MachinesState
from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli.machines import StopMachines
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import words_of

MOST_MACHINES = 4096
MOST_SHOWN = 50  # of those of a pool that are gone


async def list_pools(call: Call, request: wire.ListPoolsRequest) -> wire.ListPoolsResponse:
    read, now_s = call.read, call.now_s
    pools, renting, words = read.pools()
    name = words_of(request.name, "name")
    if name and name not in [pool.name for pool in pools]:
        raise NotFound(f"there is no pool {name}", kind="pool", id=name)
    machines = read.machines()
    here = MachinesState(Fleet(machines))
    return wire.ListPoolsResponse(
        pools=[
            _pool(
                pool,
                [_machine(one, read, now_s) for one in _shown(machines, pool.name)],
                words.get(pool.name, ""),
            )
            for pool in pools
            if name in ("", pool.name)
        ],
        cost_per_hour=here.per_hour(),
        day_cost=here.fleet.day_cost(now_s),
        most_per_hour=renting.most_per_hour,
        most_per_day=renting.most_per_day,
    )


async def stop_machines(call: Call, request: wire.StopMachinesRequest) -> wire.StopMachinesResponse:
    names = tuple(words_of(name, "machine_ids") for name in request.machine_ids)
    pool = words_of(request.pool, "pool")
    if bool(names) is bool(pool):
        raise InvalidRequest("name machines, or a pool", field="machine_ids")
    if len(names) > MOST_MACHINES:
        raise InvalidRequest(f"more than {MOST_MACHINES} machines", field="machine_ids")
    ask = StopMachines(**call.signed(request), machine_ids=names, pool=pool)
    stopped = set(await call.ask(ask))
    read, now_s = call.read, call.now_s
    return wire.StopMachinesResponse(
        machines=[
            _machine(one, read, now_s) for one in read.machines() if one.request_id in stopped
        ]
    )


def _shown(machines: Sequence[Machine], pool: str) -> list[Machine]:
    mine = [one for one in machines if one.pool == pool]
    gone = [one for one in mine if not one.open][-MOST_SHOWN:]
    return [one for one in mine if one.open or one in gone]


def _pool(pool: PoolConfig, machines: list[wire.Machine], words: str) -> wire.Pool:
    return filled(
        wire.Pool,
        pool,
        gpu_count=pool.gpus,
        boot_duration=to_duration(pool.boot),
        minimum_billing_duration=to_duration(pool.minimum_billing),
        most_count=pool.most,
        closed_reason=words,
        machines=machines,
        available_until_time=to_timestamp(pool.until_s) if pool.until_s < math.inf else None,
    )


def _machine(one: Machine, read: Published, now_s: float) -> wire.Machine:
    return filled(
        wire.Machine,
        one,
        since_time=to_timestamp(one.since_s),
        ask_time=to_timestamp(one.asked_s),
        cost=one.cost(now_s),
        attempts=map(str, read.attempts_on(one.node_id)) if one.open else (),
        job_ids=map(str, one.jobs),
        end_time=to_timestamp(one.end_s),
    )
