"""Submits jobs of one GPU through dlq's own client: `python -m benchmarks.race.dlq_client COUNT
NAME`.

Says "ready" when its line to the master is made, begins at a line on stdin, says "done", and ends
at the end of stdin. slurm_client.c does the same. With `--at-once` all jobs go in one call; a job
is asked to run `RUN_S` seconds if it gets a virtual node.
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
    options = parser.parse_args()
    identity = load_identity(Path(os.environ["DLQ_HOME"]))
    assert identity is not None
    spec = job_pb2.JobSpec(
        name=options.name, command=["/bin/true"], working_directory="/tmp", environment={RUN: "0"}
    )
    spec.resources.gpu_count = 1
    with Connection(identity, patience_s=300.0) as line:
        jobs = Jobs(line)
        Queues(line).cluster()  # the line is made
        print("ready", flush=True)
        sys.stdin.readline()
        if options.at_once:
            assert all(one.job_id for one in jobs.submit_many([spec] * options.count))
        else:
            for _ in range(options.count):
                jobs.submit(spec)
        print("done", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
