"""A broken master ends no job, starts none, and stops no agent."""

from __future__ import annotations

from collections import Counter

from google.protobuf.message import DecodeError

from dlq_nodeagent.line.wire import BadMessage
from dlq_nodeagent.model.messages import Welcome
from fuzz.hostile_master import heard
from fuzz.masters_words import BrokenMaster, is_lawful
from support.agent_bench import EPOCH, AgentBench, a_launch
from support.extent import times

WORDS = times(1_500, 30_000)
JOBS = (17, 18)


def test_words_under_wrong_fences_end_no_rank_and_start_none() -> None:
    bench = AgentBench()
    ranks = [a_launch(job, gpu_indexes=(job - 17,), does="run_for=1e9") for job in JOBS]
    bench.connect(*ranks)
    known = {launch.key: launch.fence for launch in ranks}
    master, counts = BrokenMaster("1", [str(job) for job in JOBS], epoch=EPOCH), Counter[str]()
    for number in range(WORDS):
        try:
            told = heard(master.word())
        except (DecodeError, BadMessage) as error:
            counts[type(error).__name__] += 1
            continue
        if is_lawful(told, EPOCH, known) and not isinstance(told, Welcome):
            counts["lawful"] += 1
            continue
        counts["said"] += 1
        if told is not None:
            bench.core.received(told)
        if number % 20 == 0:
            bench.run(1.0)
    bench.run(60.0)
    assert bench.starts == [launch.key for launch in ranks]
    assert all(bench.runs(launch) for launch in ranks)
    assert bench.signals == bench.sent == []
    assert bench.core.highest_epoch == EPOCH
    assert counts["said"] > WORDS / 3


def test_no_word_stops_an_agent_or_makes_it_grow() -> None:
    bench = AgentBench()
    bench.connect(*[a_launch(job, does="run_for=1e9") for job in JOBS])
    master = BrokenMaster("2", [str(job) for job in JOBS], epoch=EPOCH)
    for number in range(WORDS):
        try:
            told = heard(master.word())
        except (DecodeError, BadMessage):
            told = None
            bench.cut()
        if isinstance(told, Welcome) or number % 300 == 0:
            bench.cut()
            bench.greet()
        if told is not None:
            bench.core.received(told)
        bench.core.speak()
        if number % 20 == 0:
            bench.run(1.0)
    assert len(bench.transport.sent) < 100 * WORDS
