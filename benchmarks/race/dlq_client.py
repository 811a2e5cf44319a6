"""Submits jobs through dlq's own client: `python -m benchmarks.race.dlq_client COUNT NAME`.

They are of one GPU. With `--shapes N` they are of 1 to 8 GPUs, with N sizes of memory in turn.
Says "ready" when its line to the master is made, begins at a line on stdin, says "done", and ends
at the end of stdin. slurm_client.c does the same. With `--at-once` all jobs go in one call. A job
is asked to run `RUN_S` seconds if it gets a virtual node. `--home`: the identity of its user.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.support.virtual_nodes import RUN
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_client.queues import Queues


def main() -> None:
    """Submit when told to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("name")
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--shapes", type=int, default=1)
    parser.add_argument("--home", type=Path, default=Path(os.environ["DLQ_HOME"]))
    options = parser.parse_args()
    identity = load_identity(options.home)
    assert identity is not None
    specs = [a_spec(options.name, number, options.shapes) for number in range(options.count)]
    with Connection(identity, patience_s=300.0) as line:
        jobs = Jobs(line)
        Queues(line).cluster()  # the line is made
        print("ready", flush=True)
        sys.stdin.readline()
        if options.at_once:
            assert all(one.job_id for one in jobs.submit_many(specs))
        else:
            for spec in specs:
                jobs.submit(spec)
        print("done", flush=True)
        sys.stdin.read()


def a_spec(name: str, number: int, shapes: int) -> job_pb2.JobSpec:
    """One of the jobs; slurm_client.c asks for the same."""
    spec = job_pb2.JobSpec(
        name=name, command=["/bin/true"], working_directory="/tmp", environment={RUN: "0"}
    )
    spec.resources.gpu_count = 1
    if shapes > 1:
        spec.resources.gpu_count = 1 << number % 4
        spec.resources.memory_limit_bytes = (1 + number % shapes) << 24
    return spec


if __name__ == "__main__":
    main()
