#!/usr/bin/env python3
"""make demo: a cluster of your own trains real models, preempts one, and survives kill -9.

KEEP=1 leaves the cluster up and says how to talk to it. Exits 0 only if every proof held.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import proof
import work
from alone import keeps, perform_alone
from cluster import BIN, MASTER, Cluster
from dlq_client.line.connection import connect
from proof import ProofFailed
from screen import Screen
from stage import Stage
from work import Cast, Work

NODES = ("node-a", "node-b")
# Six GPUs reach it in two seconds.
THRESHOLD_GPU_S = 12.0


def use_up_a_share(stage: Stage, cast: Cast) -> None:
    """A data-parallel job on both nodes, and a long job that fills the rest of one."""
    stage.screen.act("Two jobs start: one on both nodes, one that fills a node")
    stage.submit(cast.ddp)
    stage.submit(cast.long)
    stage.until(lambda: stage.running(cast.ddp, cast.long), "the first jobs to run")
    stage.until(lambda: stage.job(cast.long).level > 0, f"{cast.long.name} to be demoted")
    stage.screen.say(f"{cast.long.name} has had {THRESHOLD_GPU_S:.0f} GPU-seconds: demoted")


def preempt_the_long_job(stage: Stage, cast: Cast) -> None:
    """New jobs fill the other node; the last one gets the GPUs of the long job, once it has
    saved.
    """
    stage.screen.act(f"New jobs come; the last one finds no room, and {cast.long.name} has to go")
    for each in (*cast.beside, cast.rival):
        stage.submit(each)
    stage.until(lambda: stage.job(cast.long).preemption_count > 0, "the long job to be preempted")
    stage.until(lambda: stage.running(cast.rival, *cast.beside), f"{cast.rival.name} to run")
    stage.screen.say(f"{cast.long.name} saved and left, {cast.rival.name} runs in its place")
    stage.screen.quote(stage.command("why", cast.long))


def resume_elsewhere(stage: Stage, cast: Cast) -> list[Work]:
    """The user pauses the jobs of the other node: there the long job goes on, from its checkpoint.
    None of them can have ended: they are held back."""
    stage.screen.act("The jobs of the other node are paused: the long one goes on there")
    paused = list(cast.beside)
    stage.command("pause", *paused)
    stage.until(lambda: stage.paused(*paused), "the jobs to be paused")
    stage.until(lambda: stage.running(cast.long), f"{cast.long.name} to be resumed")
    stage.screen.say(f"{cast.long.name} goes on on {stage.job(cast.long).node_ids[0]}")
    return paused


def kill_the_master(stage: Stage) -> str:
    """The jobs go on, and the next master knows them all."""
    before, epoch = stage.processes(), stage.epoch()
    stage.screen.act(f"kill -9 of the master, while {len(before)} training processes run")
    stage.cluster.kill(MASTER)
    stage.cluster.start(MASTER)
    stage.until(lambda: stage.epoch() > epoch, "the master to be back")
    stage.until(lambda: stage.cluster.all_up(), "the agents to be back")
    stage.screen.say(f"epoch {stage.epoch()}: it is back and has heard of both nodes")
    return _undisturbed(stage, before)


def _undisturbed(stage: Stage, before: Mapping[tuple[str, str, str], int]) -> str:
    """The jobs whose processes have gone have ended; the master may hear of it a little later."""
    after = stage.processes()
    gone = {key[0] for key in before if key not in after}
    stage.until(lambda: gone <= stage.ended_ids(), "word of the jobs that came to their end")
    return proof.nothing_restarted(before, after, stage.ended_ids())


def kill_an_agent(stage: Stage, cast: Cast) -> list[str]:
    """Its jobs go on, and the next agent takes them up."""
    stage.until(lambda: stage.job(cast.long).progress.step > 0, "the master to hear of its steps")
    node = stage.job(cast.long).node_ids[0]
    before = stage.processes()
    stage.screen.act(f"kill -9 of the agent of {node}, where {cast.long.name} runs")
    stage.cluster.kill(node)
    stage.until(lambda: True, "a look at the jobs")
    job = stage.job(cast.long)
    stage.cluster.start(node)
    stage.until(
        lambda: stage.job(cast.long).progress.step > job.progress.step,
        f"a new agent to tell of {cast.long.name}",
    )
    stage.screen.say(f"{node} tells of step {stage.job(cast.long).progress.step}")
    return [
        _undisturbed(stage, before),
        proof.same_attempt(job, stage.job(cast.long)),
    ]


def resume_the_paused(stage: Stage, cast: Cast, paused: Sequence[Work]) -> None:
    """Where the rival has ended there is room for them."""
    stage.until(lambda: stage.ended(cast.rival), f"{cast.rival.name} to end")
    stage.screen.act("There is room again: the paused jobs go on")
    stage.command("resume", *paused)
    stage.until(lambda: stage.ended(*cast.all), "all jobs to end")


def perform(stage: Stage) -> list[str]:
    """All acts; the proofs, as sentences."""
    pace = work.pace()
    release = stage.cluster.root / "all-acts-seen"
    cast = Cast.fitted(pace, release)
    stage.screen.say(f"jobs are sized for this machine (pace {pace:.2f})")
    use_up_a_share(stage, cast)
    preempt_the_long_job(stage, cast)
    paused = resume_elsewhere(stage, cast)
    undisturbed = stage.cluster.root / "undisturbed"
    reference = work.start_outside(cast.long, undisturbed)
    stage.screen.say(f"the same {cast.long.name} starts once more, undisturbed, outside of dlq")
    try:
        proofs = ["master killed: " + kill_the_master(stage)]
        proofs += ["agent killed: " + sentence for sentence in kill_an_agent(stage, cast)]
        release.touch()
        resume_the_paused(stage, cast, paused)
        if reference.wait(timeout=120):
            raise ProofFailed(f"the undisturbed run failed, see {undisturbed / 'output.txt'}")
    finally:
        reference.kill()
        reference.wait()
    name, trail = cast.long.name, stage.trail(stage.job(cast.long).job_id)
    proofs.append(proof.all_completed(stage.jobs, len(cast.all)))
    proofs.append(f"{name}: " + proof.moved(trail))
    proofs.append(f"{name}: " + proof.same_training(stage.out(cast.long), undisturbed))
    return proofs


def show(root: Path) -> None:
    """The whole demo in a directory of its own; an exception if anything is not as promised."""
    with ExitStack() as opened:
        screen = opened.enter_context(Screen())
        screen.act("A master and two agents start, each with eight virtual GPUs")
        if os.getuid() == 0:
            screen.say("you are root, so the jobs run as root: for a demo on one machine only")
        cluster = opened.enter_context(Cluster(root, threshold=THRESHOLD_GPU_S, nodes=NODES))
        connection = opened.enter_context(connect(home=cluster.home, patience_s=1.0))
        stage = Stage(cluster, connection, screen)
        proofs = perform(stage)
        screen.close()
        screen.closing_table(stage.jobs, stage.trail, stage.losses())
        if keeps():
            screen.proved(proofs)
            keep_up(cluster)
            return
        opened.close()
    proofs.append(proof.nothing_left(root, stage.cgroups))
    screen.proved(proofs)
    print(f"all of it in {screen.elapsed_s:.0f} s")


def keep_up(cluster: Cluster) -> None:
    """Leave the daemons running, and say how to talk to them and how to end them."""
    pids = " ".join(str(pid) for pid in cluster.leave_running())
    variables = " ".join(f"{name}={value}" for name, value in cluster.client_environment.items())
    print(f"\nThe cluster is still up. Talk to it:\n  export {variables}\n  {BIN}/dlq status -a")
    print(f"Its logs: {cluster.root}/*.log\nEnd it:\n  kill {pids}; sleep 2; rm -r {cluster.root}")


if __name__ == "__main__":
    sys.exit(perform_alone("demo", show))
