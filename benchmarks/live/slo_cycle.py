"""How long a master takes from the tick to the plan of the next slot, with 960 GPUs and 400 jobs
with deadlines.

    python -m benchmarks.live.slo_cycle [--jobs N] [--nodes N] [--slots N] [--policy NAME] [--json]

A real master and its planning process under `chronus`. The jobs and the nodes lie in its database
as if they had come before. No agent answers for the nodes, so that nothing runs: every slot all
jobs are planned for anew. Slots of 20 s, decided 5 s before they begin. Meanwhile a client asks for
jobs, one call after another, and its calls are timed in and outside of decisions. Goals of issue 8:
1 s from the tick to the plan; 50 ms for the 99th percentile of calls.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.support.conditions import percentile
from benchmarks.support.living import Living
from benchmarks.support.report import Report
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.reward import strict
from dlq_master.model.nodes.node import Gpu, Node
from dlq_master.model.order.keys import WAITING_BASE
from dlq_master.model.resources import Request
from dlq_master.store.batch import Batch

SLOT_S = 20
SETTINGS = """
[lease]
be_term = "20s"
slo_term = "20s"
save_lead = "5s"
resume = "2s"
heartbeat = "1h"
ttl = "2h"
unreachable = "3h"
hold = "4h"

[nodes]
start_grace = "0s"

[scheduler]
policy = "{policy}"

[scheduler.settings]
guarantee = "fitting"
"""


def main() -> None:
    """Tell every figure with its conditions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=400, help="with deadlines")
    parser.add_argument("--nodes", type=int, default=120, help="of 8 GPUs")
    parser.add_argument("--slots", type=int, default=3, help="to watch")
    parser.add_argument("--policy", default="chronus")
    report = Report.begin("live.slo_cycle", parser)
    chosen = report.options
    settings = SETTINGS.format(policy=chosen.policy)
    with tempfile.TemporaryDirectory() as place, Living(Path(place), settings) as living:
        living.start_anew(_full(chosen.jobs, chosen.nodes))
        living.run("dlq", "submit", "-D", "/tmp", "--", "true")  # something happens: it plans
        calls = _watch(living, chosen.slots * SLOT_S)
        _tell(report, living, calls)
    report.end()


def _full(jobs: int, nodes: int) -> Batch:
    """Jobs from one to thirty slots long whose deadlines ask for most of the cluster."""
    draw, now_s = random.Random(1), time.time()
    gpus = tuple(Gpu(index=index, gpu_type="h100") for index in range(8))
    rows = [Node(NodeId(f"n{number:03d}"), gpus, virtual=True) for number in range(nodes)]
    made = []
    for number in range(1, jobs + 1):
        run_s = SLOT_S * draw.uniform(1.0, 30.0)
        made.append(
            Job(
                job_id=JobId(number),
                user="root",
                name=f"job-{number}",
                request=Request(gpus=draw.choice([1, 2, 4, 8, 8, 16]), nodes=None),
                submit_time_s=now_s,
                state=JobState.QUEUED,
                queued_since_s=now_s,
                sequence=WAITING_BASE + number,
                duration_estimate_s=run_s,
                steps=strict(run_s * draw.uniform(3.0, 8.0) + 4 * SLOT_S),
            )
        )
    spec = job_pb2.JobSpec(command=["true"], working_directory="/tmp").SerializeToString()
    return Batch(jobs=made, nodes=rows, specs=[(job.job_id, spec) for job in made])


def _watch(living: Living, seconds: float) -> list[tuple[float, float]]:
    """When each call was made, and how long it took."""
    identity = load_identity(living.home)
    assert identity is not None
    calls = []
    with Connection(identity) as line:
        jobs, end_s = Jobs(line), time.time() + seconds
        while time.time() < end_s:
            begin_s = time.time()
            jobs.get("1")
            calls.append((begin_s, time.time() - begin_s))
            time.sleep(0.01)
    return calls


def _tell(report: Report, living: Living, calls: list[tuple[float, float]]) -> None:
    made = [row for row in log_of(living) if row.get("event") == "plan_made"]
    slots = [row for row in made if row["stage"] == "slot"]
    first = next((row for row in made if row["stage"] == "promises"), None)
    if first is not None:
        report.figure("all deadlines judged at once", first["waited_s"], "s", note=_note(first))
    worst = max(slots, key=lambda row: row["waited_s"])
    report.figure(
        "slot: from the tick to the plan", worst["waited_s"], "s", at_most=1.0, note=_note(worst)
    )
    took = sorted(1000 * took_s for _, took_s in calls)
    for share in (50, 99):
        report.figure(
            f"calls meanwhile, p{share}", percentile(took, share / 100), "ms",
            at_most=50.0 if share == 99 else None, note=f"{len(took)} calls",
        )  # fmt: skip
    report.figure("calls meanwhile, the longest", took[-1], "ms")


def _note(row: dict[str, Any]) -> str:
    return (
        f"{row['plan_s']:.3f} s of it planning, {row['changes']} changes, {row['dropped']} dropped"
    )


def log_of(living: Living) -> list[dict[str, Any]]:
    """The lines that the master has logged so far."""
    lines = (living.root / "dlq-master.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


if __name__ == "__main__":
    main()
