"""The figures of the cluster and of the master's loop at `/metrics`.

They come from sums that are kept at each commit. The cost of the page grows with its lines and with
the nodes that have changed since the last page. No job and no attempt is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dlq_master.control.loop.histogram import Histogram, Histograms
from dlq_master.control.loop.meter import BUCKETS_S, Meter
from dlq_master.control.read_model.published import Published
from dlq_master.rpc.metrics.exposition import Labels, MetricFamily, by, family, gauge, histogram


def cluster_families(read: Published, meter: Meter) -> Iterator[MetricFamily]:
    """Jobs, nodes, GPUs, teams, promises, and the work of the loop."""
    yield from _jobs(read)
    yield from _gpus(read)
    yield from _teams(read)
    yield from _machines(read)
    yield from _loop(read, meter)


def _jobs(read: Published) -> Iterator[MetricFamily]:
    yield family("dlq_jobs", "gauge", "Jobs that have not ended.", shown_jobs(read))
    words = "Of these: with deadlines."
    yield by("dlq_deadline_jobs", "gauge", words, "verdict", read.tally.verdicts)
    late, told = read.promise_risks()
    promised = read.tally.verdicts.get("promised", 0)
    verdicts = {"safe": max(0, promised - told), "at_risk": max(0, told - late), "missed": late}
    words = "Promised deadlines: safe, at risk, or missed by jobs that go on."
    yield by("dlq_promises", "gauge", words, "verdict", verdicts)
    words = "GPUs for which jobs wait, by the main reason of the last look at each job."
    pending: dict[Labels, float] = {
        (("queue", queue), ("reason", reason)): gpus
        for (queue, reason), gpus in read.pending_gpus().items()
        if gpus
    }
    yield family("dlq_pending_gpus", "gauge", words, pending)


def shown_jobs(read: Published) -> Mapping[Labels, float]:
    """The number of jobs by shown state; a live attempt decides the state."""
    found = Counter(read.tally.states)
    found.update(read.living_tally.states)
    return {
        (("queue", queue), ("state", state)): count
        for (queue, state), count in found.items()
        if count
    }


def _gpus(read: Published) -> Iterator[MetricFamily]:
    sums = read.node_sums()

    def of(key: str, *names: str) -> dict[Labels, float]:
        return {
            tuple(zip(names, values, strict=True)): count
            for (name, *values), count in sums.items()
            if name == key
        }

    yield family("dlq_nodes", "gauge", "Nodes.", of("node", "state"))
    words = "GPUs of nodes that are up, or may come back."
    yield family("dlq_gpus", "gauge", words, of("gpu", "gpu_type", "state"))
    words = "GPUs that jobs hold and that did nothing at the last report of their agent."
    yield family("dlq_gpus_held_idle", "gauge", words, of("idle", "queue"))
    idle, stalled = read.inactive()
    yield gauge("dlq_jobs_idle", "Running jobs that are idle by a rule of [[idle]].", idle)
    yield gauge("dlq_jobs_stalled", "Running jobs whose steps have stopped.", stalled)
    suspected = read.suspected_stragglers()
    words = "Nodes that are suspected of slowing their gangs down."
    yield gauge("dlq_nodes_straggling", words, suspected)
    words = "GPUs of nodes that are not down with which something is wrong (dlq gpus)."
    yield gauge("dlq_gpus_unhealthy", words, sums.get(("unwell",), 0))
    words = "Free GPUs on one open node: the most, and the median of all open nodes."
    yield family("dlq_free_block_gpus", "gauge", words, _blocks(of("block", "type", "gpus")))
    words = "Agents of nodes that are not down, by their version."
    yield family("dlq_agents", "gauge", words, of("agent", "version"))
    words = "Servers of the inference side: home, lending, loaned or reclaimed."
    yield family("dlq_loan_servers", "gauge", words, of("loan", "state"))


def _blocks(counts: Mapping[Labels, float]) -> dict[Labels, float]:
    """The largest and the median number of free GPUs on a node, for each type."""
    found: dict[Labels, float] = {}
    by_type: dict[str, list[tuple[int, float]]] = {}
    for ((_, gpu_type), (_, gpus)), nodes in counts.items():
        by_type.setdefault(gpu_type, []).append((int(gpus), nodes))
    for gpu_type, rows in by_type.items():
        rows.sort()
        half, passed = sum(nodes for _, nodes in rows) / 2, 0.0
        for size, nodes in rows:
            passed += nodes
            if passed >= half:
                found[("gpu_type", gpu_type), ("stat", "median")] = size
                break
        found[("gpu_type", gpu_type), ("stat", "max")] = rows[-1][0]
    return found


def _teams(read: Published) -> Iterator[MetricFamily]:
    living, found = read.living_tally, dict[Labels, float]()
    for team in read.teams():
        name = ("team", team.name)
        if team.rules.gpu_quota is not None:
            found[("kind", "quota"), name] = team.rules.gpu_quota
        found[("kind", "used"), name] = living.used_gpus[team.name]
        found[("kind", "borrowed"), name] = living.borrowed_gpus[team.name]
    words = "GPUs of teams: the quota, those in use, and of these those beyond the quota."
    yield family("dlq_team_gpus", "gauge", words, found)


def _machines(read: Published) -> Iterator[MetricFamily]:
    rented: Counter[Labels] = Counter()
    for machine in read.open_machines():
        rented[("pool", machine.pool), ("state", machine.state.value)] += 1
    yield family("dlq_rented_machines", "gauge", "Rented machines that are paid.", rented)
    words = "The price of rented machines that went since the start, in the currency of prices."
    yield by("dlq_cost_total", "counter", words, "pool", read.flow.costs)
    pools: dict[Labels, float] = {
        (("pool", pool), ("state", state)): gpus
        for pool, level in read.levels().items()
        for state, gpus in level._asdict().items()
    }
    yield family("dlq_pool_gpus", "gauge", "GPUs of each pool.", pools)


def _loop(read: Published, meter: Meter) -> Iterator[MetricFamily]:
    charged: dict[Labels, float] = {
        (("class", kind), ("pool", pool), ("use", use)): gpu_s
        for (pool, kind, use), gpu_s in meter.gpu_s.items()
    }
    words = "The use of the time of ended attempts."
    yield family("dlq_gpu_seconds_total", "counter", words, charged)
    words = "Events of the journal."
    yield by("dlq_events_total", "counter", words, "kind", meter.events)
    yield gauge("dlq_epoch", "Starts of the master.", read.epoch)
    yield gauge("dlq_turn_longest_seconds", "The longest turn.", meter.longest_s)
    turns = Histograms(BUCKETS_S)
    _take(turns.of(), meter)
    yield histogram("dlq_turn_seconds", "Turns of the loop, with their commits.", turns)
    yield histogram("dlq_commit_seconds", "Waits of turns for the disk.", meter.commits)
    plans = Histograms(meter.plans.of().ends, "stage")
    plans.put(meter.plans.of(), "turn")
    for labels, one in read.plan_times():
        plans.put(one, *(value for _, value in labels))
    words = "Plans: in a turn of the loop, or by the planner (slot, promises, plan)."
    yield histogram("dlq_plan_seconds", words, plans)


def _take(into: Histogram, meter: Meter) -> None:
    into.counts, into.total = list(meter.turns), meter.turns_s
