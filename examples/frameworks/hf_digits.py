#!/usr/bin/env python3
"""Training with the Trainer of Hugging Face's transformers; knows nothing of any scheduler.

    python hf_digits.py --out DIR
    torchrun --nproc-per-node 2 hf_digits.py --out DIR

On SIGTERM the Trainer saves `checkpoint-N` at the end of a step and stops. Started again, it goes
on from the newest one.
"""

import argparse
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
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

    def __init__(self, hidden: int, unhurried: Path | None) -> None:
        super().__init__()
        self.network = digits_net.network(hidden, unhurried)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Teller(TrainerCallback):
    """Says where the training begins."""

    def on_train_begin(
        self, _: TrainingArguments, state: TrainerState, *__: Any, **___: Any
    ) -> None:
        print(f"trains from step {state.global_step}", flush=True)


class StopsTogether(TrainerCallback):
    """Several processes get SIGTERM at different moments; all save and stop after the same step.

    The Trainer's own `enable_jit_checkpoint` decides in each process alone. A process that goes on
    for a step then waits for ever for the others.
    """

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True

    def on_step_end(
        self, _: TrainingArguments, __: TrainerState, control: TrainerControl, **___: Any
    ) -> None:
        anyone = torch.tensor([int(self.asked)])
        dist.all_reduce(anyone, op=dist.ReduceOp.MAX)
        if anyone.item():
            control.should_save = control.should_training_stop = True


def main() -> None:
    args = parse_arguments()
    digits_net.make_repeatable(args.seed)
    model = Classifier(args.hidden, args.unhurried_while)
    several = dist.is_torchelastic_launched()
    arguments = TrainingArguments(
        output_dir=str(args.out),
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        dataloader_num_workers=args.workers,
        dataloader_persistent_workers=args.workers > 0,
        learning_rate=1e-3,
        seed=args.seed,
        save_strategy="no",
        enable_jit_checkpoint=not several,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo" if several else None,
        ddp_find_unused_parameters=False,
    )
    callbacks = [Teller(), StopsTogether()] if several else [Teller()]
    trainer = Trainer(model=model, args=arguments, train_dataset=Digits(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(args.out)))
    if trainer.state.global_step >= args.steps and trainer.is_world_process_zero():
        print(f"final weights {digits_net.write_digest(model.network, args.out)}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = digits_net.parser(__doc__)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers per process")
    return parser.parse_args()


if __name__ == "__main__":
    main()
