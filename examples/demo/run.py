#!/usr/bin/env python3
"""make demo: a cluster of your own trains real models, preempts one, and survives kill -9.

KEEP=1 leaves the cluster up and says how to talk to it. Exits 0 only if every proof held.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import processes
import proof
from cluster import Cluster
from dlq_client.connection import connect
from dlq_client.jobs import Jobs
from proof import ProofFailed
from screen import Screen
from stage import Stage
from work import BESIDE, DDP, LATE, LONG, RIVAL, Work, start_outside

THRESHOLD_GPU_S = 24.0
ALL: Sequence[Work] = (DDP, LONG, *BESIDE, RIVAL, *LATE)


def fill_the_cluster(stage: Stage) -> None:
    """A data-parallel job over both nodes, a long job beside it, two more on the other node."""
    for work in (DDP, LONG, *BESIDE):
        stage.submit(work)
    stage.until(lambda: all(map(stage.running, (DDP, LONG, *BESIDE))), "the first jobs to run")


def preempt_the_long_job(stage: Stage) -> None:
    """The long job has had its share: a new one takes its GPUs, once it has saved."""
    stage.until(lambda: stage.job(LONG).level > 0, f"{LONG.name} to be demoted")
    stage.screen.say(f"{LONG.name} has used more than {THRESHOLD_GPU_S:.0f} GPU-seconds: demoted")
    stage.submit(RIVAL)
    stage.until(lambda: stage.job(LONG).preemption_count > 0, f"{LONG.name} to be preempted")
    stage.until(lambda: stage.running(RIVAL), f"{RIVAL.name} to run")
    stage.screen.say(f"{LONG.name} saved and left, {RIVAL.name} runs in its place")


def kill_the_master(stage: Stage) -> str:
    """kill -9 of the master: the jobs go on, and it knows them all when it is back."""
    before = stage.processes()
    stage.screen.say(f"kill -9 of the master, {len(before)} training processes run")
    stage.cluster.kill("master")
    stage.cluster.start("master")
    stage.until(lambda: len(stage.jobs) >= 5, "the master to be back")
    return proof.nothing_restarted(before, stage.processes(), stage.ended_ids())


def resume_elsewhere(stage: Stage) -> None:
    """GPUs become free on the other node: the long job goes on there, from its checkpoint."""
    stage.until(lambda: stage.running(LONG), f"{LONG.name} to be resumed")
    stage.screen.say(f"{LONG.name} goes on on {stage.job(LONG).node_ids[0]}")
    for work in LATE:
        stage.submit(work)


def kill_an_agent(stage: Stage) -> str:
    """kill -9 of the agent that has the long job: its jobs go on, a new agent takes them up."""
    node = stage.job(LONG).node_ids[0]
    before = stage.processes()
    stage.screen.say(f"kill -9 of the agent of {node}")
    stage.cluster.kill(node)
    stage.cluster.start(node)
    stage.until(lambda: stage.job(LONG).attempt_count == 2, "the agent to be back")
    return proof.nothing_restarted(before, stage.processes(), stage.ended_ids())


def perform(stage: Stage) -> list[str]:
    """All acts; the proofs, as sentences."""
    fill_the_cluster(stage)
    preempt_the_long_job(stage)
    proofs = ["master killed: " + kill_the_master(stage)]
    resume_elsewhere(stage)
    undisturbed = stage.cluster.root / "undisturbed"
    reference = start_outside(LONG, undisturbed)
    stage.screen.say(f"the same {LONG.name} once more outside the cluster, undisturbed")
    try:
        proofs.append("agent killed: " + kill_an_agent(stage))
        stage.until(lambda: all(map(stage.ended, ALL)), "all jobs to end")
        if reference.wait(timeout=120):
            raise ProofFailed(f"the undisturbed run failed, see {undisturbed / 'output.txt'}")
    finally:
        reference.kill()
    proofs.append(proof.all_completed(stage.jobs, len(ALL)))
    proofs.append(f"{LONG.name}: " + proof.moved(stage.nodes_of(LONG)))
    proofs.append(f"{LONG.name}: " + proof.same_training(stage.out(LONG), undisturbed))
    return proofs


def keep_up(cluster: Cluster) -> None:
    """Leave the daemons running, and say how to talk to them and how to end them."""
    pids = [str(pid) for pid in cluster.leave_running()]
    variables = " ".join(f"{k}={shlex.quote(v)}" for k, v in cluster.client_environment.items())
    print(f"\nThe cluster is still up. Talk to it:\n  export {variables}\n  dlq nodes")
    print(
        f"Its logs are {cluster.root}/*.log. End it:\n  kill {' '.join(pids)}; rm -r {cluster.root}"
    )


def main() -> int:
    root = Path(tempfile.mkdtemp(prefix="dlq-demo-"))
    keep = os.environ.get("KEEP") == "1"
    try:
        with Cluster(root, threshold=THRESHOLD_GPU_S) as cluster, ExitStack() as opened:
            screen = opened.enter_context(Screen())
            screen.say(f"a master and two agents run in {root}; their GPUs are virtual")
            client = Jobs(opened.enter_context(connect(home=cluster.home, patience_s=1.0)))
            stage = Stage(cluster, client, screen)
            proofs = perform(stage)
            screen.close_with(stage.jobs, stage.losses())
            if keep:
                keep_up(cluster)
        if not keep:
            proofs.append(proof.nothing_left(root))
    except (ProofFailed, TimeoutError, subprocess.CalledProcessError) as failure:
        processes.kill_all(root)
        print(f"demo failed: {failure}; the logs are in {root}", file=sys.stderr)
        return 1
    except BaseException:
        processes.kill_all(root)
        raise
    for sentence in proofs:
        print(f"proved: {sentence}")
    if not keep:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
