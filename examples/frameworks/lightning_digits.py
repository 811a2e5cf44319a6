#!/usr/bin/env python3
"""Training with Lightning's Trainer; knows no scheduler except through Lightning itself.

    srun python lightning_digits.py --out DIR
    torchrun --nproc-per-node 2 lightning_digits.py --out DIR

Where Lightning finds Slurm's variables it saves on SIGUSR1, asks to be queued again, and goes on
from the newest hpc_ckpt in DIR by itself. Under torchrun it saves `step-N.ckpt` on SIGTERM, leaves,
and goes on from the newest of them.
"""

import argparse
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import digits_net


class Batches(Sampler[list[int]]):
    """This process's part of batch n, drawn from the seed and n alone, from `first` on."""

    def __init__(self, seed: int, size: int, steps: int) -> None:
        self.seed, self.size, self.steps, self.first = seed, size, steps, 0

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.first, self.steps):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
            yield self._drawn(generator).tolist()

    def _drawn(self, generator: torch.Generator) -> torch.Tensor:
        parts, part = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        return torch.randint(digits_net.TRAINED, (parts, self.size), generator=generator)[part]

    def __len__(self) -> int:
        return self.steps


class Digits(pl.LightningDataModule):
    """Says in each checkpoint where it is: Lightning does not wind a loader forward by itself."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.workers = args.workers
        self.batches = Batches(args.seed, args.batch, args.steps)

    def train_dataloader(self) -> DataLoader[Any]:
        dataset = TensorDataset(*digits_net.load())
        return DataLoader(dataset, batch_sampler=self.batches, num_workers=self.workers)

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        return {"step": self.trainer.global_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.batches.first = state_dict["step"]


class Classifier(pl.LightningModule):
    """Plain supervised learning."""

    def __init__(self, hidden: int, unhurried: Path | None) -> None:
        super().__init__()
        self.network = digits_net.network(hidden, unhurried)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class BetweenSteps(pl.Callback):
    """Lightning saves inside its signal handler, wherever that finds it: it shall be between two
    steps.

    Without this a checkpoint may hold weights of which a half has made the step. Several processes
    get the signal at different moments: all save after the same step.
    """

    def __init__(self, directory: Path, asked_by: signal.Signals) -> None:
        self.directory, self.asked_by = directory, asked_by
        self.asked = False
        self.lightnings: Any = None

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.lightnings = signal.getsignal(self.asked_by)
        signal.signal(self.asked_by, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        if not trainer.strategy.reduce_boolean_decision(self.asked, all=False):
            return
        self.asked = False
        if self.asked_by is signal.SIGUSR1 and callable(self.lightnings):
            self.lightnings(self.asked_by, None)  # saves, and asks Slurm for another run
        else:
            trainer.save_checkpoint(self.directory / f"step-{trainer.global_step:06d}.ckpt")
            trainer.should_stop = True


class Teller(pl.Callback):
    """Says where the training begins."""

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        print(f"trains from step {trainer.global_step}", flush=True)


def main() -> None:
    args = parse_arguments()
    digits_net.make_repeatable(args.seed)
    model = Classifier(args.hidden, args.unhurried_while)
    several = dist.is_torchelastic_launched()
    asked_by = signal.SIGTERM if several else signal.SIGUSR1
    between = [] if args.as_it_is else [BetweenSteps(args.out, asked_by)]
    trainer = pl.Trainer(
        default_root_dir=args.out,
        accelerator="cpu",
        strategy="ddp" if several else "auto",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]) if several else 1,
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]) if several else 1,
        max_steps=args.steps,
        max_epochs=1,
        callbacks=[*between, Teller()],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    newest = max(args.out.glob("step-*.ckpt"), default=None)
    trainer.fit(model, datamodule=Digits(args), ckpt_path=newest)
    if trainer.global_step >= args.steps and trainer.is_global_zero:
        print(f"final weights {digits_net.write_digest(model.network, args.out)}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = digits_net.parser(__doc__)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers per process")
    parser.add_argument("--as-it-is", action="store_true", help="let Lightning save in its handler")
    return parser.parse_args()


if __name__ == "__main__":
    main()
