"""What a scraper reads: numbers of the published state, and counters of what the loop has done."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from dlq_master.control.loop.meter import Meter
from dlq_master.control.stimuli import AskedDeadline
from dlq_master.model.ids import NodeId
from dlq_master.model.usage.accounting import Account, UseClass, Used
from dlq_master.rpc.metrics.access import MetricsDoor
from dlq_master.rpc.metrics.exposition import MetricFamily
from dlq_master.rpc.metrics.metrics import MetricsServer
from dlq_master.rpc.metrics.page import cluster_families
from dlq_master.store.tables.accounts import UseRow
from support.master_harness import Master
from support.metric_pages import page_of, samples
from support.sim_agent import SimAgent


@pytest.fixture
def master() -> Iterator[Master]:
    """Two jobs on a node of four GPUs, one of them with a deadline that nobody promises; one
    waits.
    """
    master = Master()
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    for due in ((), (AskedDeadline(100.0, after_s=900.0),)):
        master.submit(1, deadlines=due)
    master.submit(4)
    yield master
    master.close()


def test_gauges_tell_the_published_state(master: Master) -> None:
    told = page_of(master.loop.published)
    assert told['dlq_jobs{queue="default",state="assigned"}'] == 2
    assert told['dlq_jobs{queue="default",state="queued"}'] == 1
    assert told['dlq_gpus{gpu_type="H100",state="held"}'] == 2
    assert told['dlq_gpus{gpu_type="H100",state="free"}'] == 2
    assert told['dlq_nodes{state="up"}'] == 1
    assert told['dlq_deadline_jobs{verdict="not_judged"}'] == 1
    assert told["dlq_epoch"] == master.state.epoch


def test_counters_tell_what_the_loop_has_done(master: Master) -> None:
    meter = master.loop._meter
    told = page_of(master.loop.published, meter)
    assert told['dlq_events_total{kind="job_submitted"}'] == 3
    assert told['dlq_events_total{kind="attempt_assigned"}'] == 2
    turns = told["dlq_turn_seconds_count"]
    assert turns == told['dlq_turn_seconds_bucket{le="+Inf"}'] > 3
    meter.turned(0.3)
    told = page_of(master.loop.published, meter)
    assert told['dlq_turn_seconds_bucket{le="0.25"}'] == turns
    assert told['dlq_turn_seconds_bucket{le="1.0"}'] == turns + 1
    assert told["dlq_turn_longest_seconds"] == 0.3


def test_a_scrape_looks_at_no_job_that_waits(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        master.submit(4)
    master.hold(master.submit(4).job_id)
    read = master.loop.published
    monkeypatch.setattr(read, "jobs", lambda: pytest.fail("all jobs are looked at"))
    told = page_of(read)
    assert told['dlq_jobs{queue="default",state="queued"}'] == 21
    assert told['dlq_jobs{queue="default",state="held"}'] == 1
    assert told['dlq_jobs{queue="default",state="assigned"}'] == 2


async def asked(port: int, words: bytes) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    text = (await reader.read()).decode()
    writer.close()
    head, _, body = text.partition("\r\n\r\n")
    return head.splitlines()[0] if head else "", body


def served(master: Master) -> MetricsServer:
    read = master.loop.published
    return MetricsServer(
        "127.0.0.1:0",
        {"/metrics": lambda: cluster_families(read, Meter())},
        master.clock,
        MetricsDoor(),
    )


def test_it_is_served_to_whoever_asks_in_http(master: Master) -> None:
    async def talk() -> list[tuple[str, str]]:
        server = served(master)
        await server.start()
        words = [b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
        words += [b"POST /metrics HTTP/1.1\r\n\r\n", b"x" * 100_000]
        found = [await asked(server.port, each) for each in words]
        await server.stop()
        return found

    (good, body), (lost, _), (wrong, _), (silent, _) = asyncio.run(talk())
    assert good == "HTTP/1.0 200 OK"
    assert samples(body)['dlq_nodes{state="up"}'] == 1
    assert (lost, wrong) == ("HTTP/1.0 404 Not Found", "HTTP/1.0 405 Method Not Allowed")
    assert silent == ""


def test_gpus_of_pools_and_what_came_of_their_time(master: Master) -> None:
    account = Account(1, "alice", "", UseClass.TRIAL, "training")
    meter = Meter()
    meter.charged(
        [UseRow(account, Used(useful=5.0)), UseRow(account, Used(useful=1.0, failed=2.0))]
    )
    told = page_of(master.loop.published, meter)
    assert told['dlq_pool_gpus{pool="training",state="used"}'] == 2
    assert told['dlq_pool_gpus{pool="training",state="idle"}'] == 2
    assert told['dlq_gpu_seconds_total{class="trial",pool="training",use="useful"}'] == 6
    assert told['dlq_gpu_seconds_total{class="trial",pool="training",use="failed"}'] == 2


def test_it_listens_at_every_address_of_a_name(master: Master) -> None:
    async def addresses() -> tuple[set[str], set[str]]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        server = MetricsServer("localhost:0", {}, master.clock, MetricsDoor())
        await server.start()
        taken = {one.getsockname()[0] for one in server._listening}
        await server.stop()
        return {str(one[4][0]) for one in found}, taken

    wanted, taken = asyncio.run(addresses())
    assert taken == wanted


def test_a_taken_port_is_an_error_of_the_start(master: Master) -> None:
    async def twice() -> None:
        first = MetricsServer("127.0.0.1:0", {}, master.clock, MetricsDoor())
        await first.start()
        second = MetricsServer(f"127.0.0.1:{first.port}", {}, master.clock, MetricsDoor())
        try:
            with pytest.raises(OSError, match="in use"):
                await second.start()
        finally:
            await second.stop()
            await first.stop()

    asyncio.run(twice())


async def answers_to(server: MetricsServer, *requests: bytes) -> list[str]:
    await server.start()
    found = [(await asked(server.port, each))[0] for each in requests]
    await server.stop()
    return found


def test_hostile_requests_are_answered_and_the_next_one_as_well(master: Master) -> None:
    hostile = [
        b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n",
        b"GET /../metrics HTTP/1.1\r\n\r\n",
        b"\x00\xff\x00 \xff\r\n\r\n",
        b"\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics?a=b#c HTTP/9\r\nAccept: \xff;q=x,,\r\nno colon\r\n:\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept: " + b"a;q=1," * 1_000 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 5_000 + b"\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
    ]
    found = asyncio.run(answers_to(served(master), *hostile))
    lost, good = "HTTP/1.0 404 Not Found", "HTTP/1.0 200 OK"
    assert found == [lost, lost, lost, lost, good, good, good, "", good]


def test_a_fault_of_a_page_ends_one_answer_and_is_in_the_log(master: Master) -> None:
    calls = []

    def page() -> list[MetricFamily]:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("a bug")
        return []

    server = MetricsServer("127.0.0.1:0", {"/metrics": page}, master.clock, MetricsDoor())
    ask = b"GET /metrics HTTP/1.1\r\n\r\n"
    with capture_logs() as logs:
        found = asyncio.run(answers_to(server, ask, ask))
    assert found == ["HTTP/1.0 500 Internal Server Error", "HTTP/1.0 200 OK"]
    assert [line["event"] for line in logs] == ["scrape_failed"]
