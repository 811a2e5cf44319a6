"""`GET /metrics` in the text format of Prometheus, for scrapers on the master's own host.

Nobody is asked who they are, so it listens on loopback only, and tells numbers: no names of jobs or
people. Gauges are told from the published state, which costs O(attempts that live and nodes).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from dlq_common.daemon.logs import get_logger
from dlq_common.text.addresses import split_address
from dlq_master.control.loop.meter import BUCKETS_S, Meter
from dlq_master.control.read_model.published import Published
from dlq_master.model.nodes.node import NodeState

_log = get_logger("master.metrics")
PATIENCE_S = 5.0  # for a request to come, and for its answer to be taken
LONGEST_REQUEST = 8192
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class MetricsServer:
    """Serves one page over HTTP/1.0; every connection is closed after its answer."""

    def __init__(
        self,
        address: str,
        published: Published,
        meter: Meter,
        more: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`more`: lines beside those of the cluster."""
        self._address = address
        self._more = more
        self._published = published
        self._meter = meter
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen."""
        host, port = split_address(self._address)
        self._server = await asyncio.start_server(self._answer, host, port, limit=LONGEST_REQUEST)

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                writer.write(self._reply(request))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            _log.debug("scrape_broken")
        finally:
            writer.close()

    def _reply(self, request: str) -> bytes:
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != "/metrics":
            return _http("404 Not Found", "there is /metrics\n")
        if method != "GET":
            return _http("405 Method Not Allowed", "GET it\n")
        return _http("200 OK", page(self._published, self._meter, self._more()))


def page(read: Published, meter: Meter, more: Iterable[str] = ()) -> str:
    """Everything, one sample a line."""
    lines: list[str] = []
    lines += family("dlq_jobs", "gauge", "Jobs that have not ended.", _jobs(read))
    lines += family("dlq_deadline_jobs", "gauge", "Of these: with deadlines.", _deadlines(read))
    lines += family("dlq_nodes", "gauge", "Nodes.", _nodes(read))
    lines += family(
        "dlq_gpus", "gauge", "GPUs of nodes that are up, or may come back.", _gpus(read)
    )
    lines += family("dlq_pool_gpus", "gauge", "GPUs of each pool.", _pools(read))
    charged: dict[Labels, float] = {
        (("class", kind), ("pool", pool), ("use", use)): gpu_s
        for (pool, kind, use), gpu_s in meter.gpu_s.items()
    }
    words = "The use of the time of ended attempts."
    lines += family("dlq_gpu_seconds_total", "counter", words, charged)
    counted: dict[Labels, float] = {
        (("kind", kind),): count for kind, count in meter.events.items()
    }
    lines += family("dlq_events_total", "counter", "Events of the journal.", counted)
    lines += gauge("dlq_epoch", "Starts of the master.", read.epoch)
    lines += gauge("dlq_turn_longest_seconds", "The longest turn.", meter.longest_s)
    return "\n".join([*lines, *_turns(meter), *more, ""])


def _jobs(read: Published) -> Mapping[Labels, float]:
    """By the states that people see: those of living attempts, where there are any."""
    found = Counter(read.tally.states)
    for attempt in read.living():
        job = read.job(attempt.key.job_id)
        if job is not None and job.live_key == attempt.key and not job.ended:
            found[job.queue, job.state.value] -= 1
            found[job.queue, attempt.shown_state] += 1
    return {
        (("queue", queue), ("state", state)): count
        for (queue, state), count in found.items()
        if count
    }


def _deadlines(read: Published) -> Mapping[Labels, float]:
    return {(("verdict", word),): count for word, count in read.tally.verdicts.items() if count}


def _nodes(read: Published) -> Mapping[Labels, float]:
    found: Counter[Labels] = Counter()
    for node in read.nodes():
        found[(("state", node.state.value),)] += 1
    return found


def _gpus(read: Published) -> Mapping[Labels, float]:
    found: Counter[Labels] = Counter()
    for node in read.nodes():
        if node.state is NodeState.DOWN:
            continue
        held = read.holders(node.node_id)
        for gpu in node.gpus:
            withheld = node.withheld >> gpu.index & 1
            state = "held" if gpu.index in held else "withheld" if withheld else "free"
            found[("gpu_type", gpu.gpu_type), ("state", state)] += 1
    return found


def _pools(read: Published) -> Mapping[Labels, float]:
    return {
        (("pool", pool), ("state", state)): gpus
        for pool, level in read.levels().items()
        for state, gpus in level._asdict().items()
    }


def _turns(meter: Meter) -> Iterator[str]:
    name = "dlq_turn_seconds"
    yield f"# HELP {name} Turns of the loop, with their commits."
    yield f"# TYPE {name} histogram"
    ends = [*map(str, BUCKETS_S), "+Inf"]
    for end, count in zip(ends, accumulate(meter.turns), strict=True):
        yield f'{name}_bucket{{le="{end}"}} {count}'
    yield f"{name}_sum {meter.turns_s:.6f}"
    yield f"{name}_count {sum(meter.turns)}"


def family(name: str, kind: str, words: str, samples: Mapping[Labels, float]) -> Iterator[str]:
    """One family of samples, with its words."""
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
    for labels, value in sorted(samples.items()):
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        yield f"{name}{{{told}}} {value:g}" if told else f"{name} {value:g}"


def gauge(name: str, words: str, value: float) -> Iterator[str]:
    """A family of one sample without labels."""
    yield from family(name, "gauge", words, {(): value})


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _http(status: str, body: str) -> bytes:
    content = body.encode()
    head = f"HTTP/1.0 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(content)}\r\n\r\n"  # noqa: E501
    return head.encode() + content
