#!/usr/bin/env python3
"""Training with Lightning's Trainer; knows nothing of any scheduler but what Lightning itself knows.

    srun python lightning_digits.py --out DIR

Where Lightning finds Slurm's variables it saves on SIGUSR1, asks to be queued again, and goes on from the
newest hpc_ckpt in DIR by itself.
"""

import argparse
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import digits_net


class Batches(Sampler[list[int]]):
    """Batch n of the training, drawn from the seed and n alone, from `first` on."""

    def __init__(self, seed: int, size: int, steps: int) -> None:
        self.seed, self.size, self.steps, self.first = seed, size, steps, 0

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.first, self.steps):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
            yield torch.randint(digits_net.TRAINED, (self.size,), generator=generator).tolist()

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

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.network = digits_net.network(hidden)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class BetweenSteps(pl.Callback):
    """Lightning saves inside its signal handler, wherever that finds it: it shall be between two steps.

    Without this a checkpoint may hold weights of which a half has made the step.
    """

    def __init__(self) -> None:
        self.put_off: list[int] = []
        self.lightnings: Any = None

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        print(f"trains from step {trainer.global_step}", flush=True)
        self.lightnings = signal.getsignal(signal.SIGUSR1)
        if callable(self.lightnings):
            signal.signal(signal.SIGUSR1, lambda number, _: self.put_off.append(number))

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        while self.put_off:
            self.lightnings(self.put_off.pop(), None)


def main() -> None:
    args = parse_arguments()
    digits_net.make_repeatable(args.seed)
    model = Classifier(args.hidden)
    trainer = pl.Trainer(
        default_root_dir=args.out,
        accelerator="cpu",
        devices=1,
        max_steps=args.steps,
        max_epochs=1,
        callbacks=[BetweenSteps()],
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=Digits(args))
    if trainer.global_step >= args.steps:
        print(f"final weights {digits_net.write_digest(model.network, args.out)}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
