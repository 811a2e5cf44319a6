"""In columns, all jobs at once, the same is decided as job by job."""

from __future__ import annotations

from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.registry.renting import build
from dlq_master.policy.rent.decide import decide
from dlq_master.policy.rent.market import Bidder, MachineOffer, Market, PresentMachine
from support import plain_renting

HOUR_S = 3600.0
WIDTH = 4
NOW_S = 1000.0

hours = st.sampled_from([0.0, 0.01, 0.1, 0.25, 1.0, 3.0, 10.0])


@st.composite
def offers(draw: st.DrawFn) -> tuple[MachineOffer, ...]:
    """One to three pools; kinds may be shared, and machines be smaller than the largest."""
    found = []
    for n in range(draw(st.integers(1, 3))):
        until_s = draw(st.sampled_from([inf, inf, NOW_S + HOUR_S, NOW_S - 1.0]))
        kind, gpus = draw(st.sampled_from(["a100", "h100"])), draw(st.sampled_from([1, 2, 4]))
        price, boot_s = draw(st.sampled_from([0.0, 1.0, 10.0])), HOUR_S * draw(hours)
        made = NodeType(
            f"p{n}", kind, WIDTH if n == 0 else gpus, price, boot_s, HOUR_S * draw(hours), until_s
        )
        found.append(MachineOffer(made, draw(st.integers(0, 3))))
    return tuple(found)


@st.composite
def wanting(draw: st.DrawFn, job: int, of: tuple[MachineOffer, ...]) -> Bidder:
    """Fixed in its GPUs or not, at home on some of the pools, or nowhere."""
    left_s = np.full((len(of), WIDTH), inf)
    sizes = draw(st.sampled_from([(1,), (2,), (3,), (4,), (1, 2, 4), (1, 2)]))
    lasts_s = HOUR_S * draw(hours) + 1.0
    for n, offer in enumerate(of):
        if draw(st.integers(0, 3)):
            for gpus in sizes:
                if gpus <= offer.type.gpus:
                    left_s[n, gpus - 1] = lasts_s / gpus**0.85 / (n + 1)
    own_end_s = NOW_S + HOUR_S * draw(hours) if draw(st.integers(0, 4)) else inf
    weight = draw(st.sampled_from([0.0, 1.0, 20.0, 100.0])) / HOUR_S
    return Bidder(job, NOW_S + HOUR_S * (draw(hours) - 1.0), weight, left_s, own_end_s)


@st.composite
def markets(draw: st.DrawFn) -> Market:
    """Whatever may be decided on."""
    of = draw(offers())
    jobs = tuple(draw(wanting(job, of)) for job in range(1, 1 + draw(st.integers(0, 8))))
    here = []
    for n in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(of) - 1))
        ready_s, paid_s = (NOW_S + HOUR_S * (draw(hours) - 0.1) for _ in range(2))
        free = draw(st.integers(0, of[at].type.gpus))
        busy = (99,) if draw(st.booleans()) else ()
        here.append(PresentMachine(f"m{n}", at, ready_s, paid_s, free, busy))
    spare = draw(st.sampled_from([inf, inf, 15.0]))
    return Market(NOW_S, of, tuple(here), jobs, draw(st.sampled_from([inf, inf, 12.0])), spare)


@given(market=markets(), policy=st.sampled_from(["dlq", "gpuaas-greedy", "gpuaas-edf"]))
def test_columns_decide_what_single_jobs_do(market: Market, policy: str) -> None:
    found = [
        how(market, build(policy, {}), np.random.default_rng(7))
        for how in (decide, plain_renting.decide)
    ]
    assert found[0] == found[1]
