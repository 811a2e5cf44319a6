"""When the agent dials again."""

import random

from dlq_common.daemon.config import Seconds
from dlq_nodeagent.line.uplink import Reconnect, ReconnectConfig
from support.agent_bench import AgentBench


def delays(failures: int, *, seed: int = 3) -> list[float]:
    """The waits after that many failures in a row."""
    reconnect = Reconnect(ReconnectConfig(), random.Random(seed))
    return [reconnect.delay_s() for _ in range(failures)]


def test_the_first_try_is_short_and_the_second_within_the_jitter() -> None:
    for seed in range(200):
        first, second, *_ = delays(3, seed=seed)
        assert 0 <= first <= 0.5
        assert 0 <= second <= 15


def test_returns_of_many_agents_are_spread_over_the_jitter() -> None:
    seconds = [delays(2, seed=seed)[1] for seed in range(1000)]
    per_second = [sum(1 for it in seconds if n <= it < n + 1) for n in range(15)]
    assert max(per_second) < 110
    assert min(per_second) > 30


def test_no_agent_stays_away_longer_than_the_cap() -> None:
    longest = max(max(delays(40, seed=seed)) for seed in range(300))
    assert 14 < longest <= 15


def test_waits_double_up_to_the_cap() -> None:
    settings = ReconnectConfig(Seconds(0.5), Seconds(2.0), Seconds(60.0))
    longest = [0.0] * 9
    for seed in range(500):
        reconnect = Reconnect(settings, random.Random(seed))
        longest = [max(most, reconnect.delay_s()) for most in longest]
    assert [round(most) for most in longest[1:]] == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_welcome_makes_the_next_try_short_again() -> None:
    reconnect = Reconnect(ReconnectConfig(), random.Random(1))
    for _ in range(10):
        reconnect.delay_s()
    reconnect.succeeded()
    assert reconnect.delay_s() <= 0.5


def test_a_master_without_jitter_is_not_dialled_in_a_busy_loop() -> None:
    reconnect = Reconnect(ReconnectConfig(), random.Random(1))
    reconnect.jitter_s = 0.0
    waits = [reconnect.delay_s() for _ in range(20)]
    assert sum(waits) > 60


def test_a_master_that_is_away_is_dialled_ever_more_seldom() -> None:
    bench = AgentBench()
    for _ in range(8):
        bench.greet()
        bench.cut()
    bench.run(300)
    assert bench.transport.opens < 80
