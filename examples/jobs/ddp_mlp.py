#!/usr/bin/env python3
"""The perceptron of mlp.py, data-parallel: each node trains on its share of every batch."""

import argparse
import os
import sys

import one_thread  # noqa: F401 - before numpy

# isort: split
import numpy as np

import allreduce
import dlq_train
import mlp
from allreduce import Group
from loop import hold_back
from mlp import Mlp
from training import Training


def train(model: Mlp, options: argparse.Namespace, run: dlq_train.Run, group: Group) -> None:
    """Rank 0 logs and saves; every rank decides alike, and waits until the save is committed."""
    with Training(model, options.out if group.rank == 0 else None) as training:
        if group.rank == 0:
            run.resume(training.load) or training.begin()
        training.unpack(group.broadcast(training.pack()))  # all go on from rank 0's checkpoint
        print(f"rank {group.rank} of {group.size} starts at step {training.step}", flush=True)
        while training.step < options.steps:
            hold_back(options)
            loss = training.log(train_step(model, options.batch, group))
            run.beat(training.step, loss=loss, total=options.steps)
            if training.step % options.print_every == 0:
                print(f"step {training.step}/{options.steps} loss {loss:.4f}", flush=True)
            stop = group.max(run.stop_flag())
            if stop or training.step % options.save_every == 0:
                if group.rank == 0:
                    run.save(training.step, training.save)
                group.barrier()
            if stop:
                print(f"rank {group.rank} leaves at step {training.step}", flush=True)
                run.leave()
        training.finish()
    group.barrier()
    print(f"done at step {options.steps}, accuracy {model.accuracy():.3f}", flush=True)
    run.done()


def train_step(model: Mlp, batch: int, group: Group) -> float:
    """One step on all ranks: the mean of the shares' gradients is the gradient of the batch."""
    x, y = model.data.batch(model.rng, batch, model.scratch)  # every rank draws the same images
    share = slice(group.rank, None, group.size)
    loss, gradient = model.gradient(x[share], y[share])
    mean = group.sum(np.append(gradient, loss)) / group.size
    model.update(mean[:-1])
    return float(mean[-1])


def main() -> None:
    options = mlp.arguments(__doc__, steps=600).parse_args()
    run = dlq_train.init()
    if options.batch % run.nnodes:
        sys.exit(f"--batch {options.batch} does not divide by {run.nnodes} nodes")
    address = (
        os.environ.get("DLQ_MASTER_ADDR", "127.0.0.1"),
        int(os.environ.get("DLQ_MASTER_PORT", "0")),
    )
    name = f"{run.job_id}.{run.attempt}"
    try:
        with allreduce.join(name, rank=run.rank, size=run.nnodes, address=address) as group:
            train(Mlp(options), options, run, group)
    except allreduce.PeerLost as lost:
        sys.exit(f"{name}: {lost}")


if __name__ == "__main__":
    main()
