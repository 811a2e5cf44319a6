#!/usr/bin/env python3
"""Training with the Trainer of Hugging Face's transformers; knows nothing of any scheduler.

    python hf_digits.py --out DIR

On SIGTERM the Trainer saves `checkpoint-N` at the end of a step and stops. Started again, it goes on from
the newest one.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import digits_net


class Digits(Dataset[dict[str, torch.Tensor]]):
    """The images one by one."""

    def __init__(self) -> None:
        self.images, self.labels = digits_net.load()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"images": self.images[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    """Returns its loss, as the Trainer wants it."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.network = digits_net.network(hidden)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Teller(TrainerCallback):
    """Says where the training begins."""

    def on_train_begin(
        self, _: TrainingArguments, state: TrainerState, *__: Any, **___: Any
    ) -> None:
        print(f"trains from step {state.global_step}", flush=True)


def main() -> None:
    args = parse_arguments()
    digits_net.make_repeatable(args.seed)
    model = Classifier(args.hidden)
    arguments = TrainingArguments(
        output_dir=str(args.out),
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        dataloader_num_workers=args.workers,
        learning_rate=1e-3,
        seed=args.seed,
        save_strategy="no",
        enable_jit_checkpoint=True,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Digits(), callbacks=[Teller()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(args.out)))
    if trainer.state.global_step >= args.steps:
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
