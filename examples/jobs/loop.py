"""The training loop that the single-process jobs share, and their common arguments."""

import argparse
import time
from pathlib import Path

import dlq_train
from training import Model, Training

SLOWLY_S = 180.0  # the time of all steps together, as long as the file of --slow-until is missing


def arguments(description: str | None, *, steps: int, batch: int) -> argparse.ArgumentParser:
    """The arguments that every job has; a job adds its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path(), help="for loss.jsonl and weights.npz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--save-every", type=int, default=200, metavar="STEPS")
    parser.add_argument("--print-every", type=int, default=100, metavar="STEPS")
    parser.add_argument(
        "--slow-until",
        type=Path,
        metavar="FILE",
        help=f"take {SLOWLY_S:.0f} s for all steps until FILE exists, so that a show has the time "
        "it needs",
    )
    return parser


def hold_back(options: argparse.Namespace) -> None:
    """Before a step: wait for its share of SLOWLY_S, while the file of `--slow-until` is
    missing.
    """
    if options.slow_until is not None and not options.slow_until.exists():
        time.sleep(SLOWLY_S / options.steps)


def train(model: Model, options: argparse.Namespace) -> None:
    """Train to `--steps`, or to the step after which dlq wants its GPUs back."""
    run = dlq_train.init()
    with Training(model, options.out) as training:
        run.resume(training.load) or training.begin()
        print(f"starting at step {training.step}", flush=True)
        while training.step < options.steps:
            hold_back(options)
            loss = training.train_step()
            run.beat(training.step, loss=loss, total=options.steps)
            if training.step % options.print_every == 0:
                print(f"step {training.step}/{options.steps} loss {loss:.4f}", flush=True)
            if run.should_stop():
                run.save(training.step, training.save)
                print(f"saved at step {training.step}, leaving", flush=True)
                run.leave()
            if run.should_save() or training.step % options.save_every == 0:
                run.save(training.step, training.save)
        training.finish()
    print(f"done at step {options.steps}, accuracy {model.accuracy():.3f}", flush=True)
    run.done()
