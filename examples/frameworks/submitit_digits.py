#!/usr/bin/env python3
"""A training submitted with submitit, as on any Slurm cluster.

    python submitit_digits.py --out DIR --log LOGS

prints the job's number, waits for its end, and prints the hash of the weights. On SIGUSR2 submitit
stores what `checkpoint()` returns and queues the job again; the training goes on from its newest
file.
"""

from dataclasses import dataclass
from pathlib import Path

import submitit
import torch
from submitit.helpers import DelayedSubmission
from torch import nn

import digits_net


@dataclass
class Training:
    """The object that is pickled and sent. It saves every so often, and when it is asked to it only
    leaves.
    """

    out: Path
    steps: int
    batch: int
    hidden: int
    save_every: int
    seed: int
    unhurried: Path | None

    def __call__(self) -> str:
        digits_net.make_repeatable(self.seed)
        model = digits_net.network(self.hidden, self.unhurried)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        images, labels = digits_net.load()
        first = self._load(model, optimizer)
        print(f"trains from step {first}", flush=True)
        for step in range(first, self.steps):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
            chosen = torch.randint(digits_net.TRAINED, (self.batch,), generator=generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            if (step + 1) % self.save_every == 0:
                self._save(step + 1, model, optimizer)
        return digits_net.write_digest(model, self.out)

    def checkpoint(self) -> DelayedSubmission:
        """Called by submitit on SIGUSR2, in the middle of any step."""
        return DelayedSubmission(self)

    def _save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        draft = self.out / "newest.tmp"
        torch.save(
            {"step": step, "model": model.state_dict(), "sgd": optimizer.state_dict()}, draft
        )
        draft.rename(self.out / "newest.pt")

    def _load(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        newest = self.out / "newest.pt"
        if not newest.exists():
            return 0
        saved = torch.load(newest, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["sgd"])
        return int(saved["step"])


def main() -> None:
    parser = digits_net.parser(__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--here", action="store_true", help="train in this process instead")
    args = parser.parse_args()
    training = Training(
        args.out, args.steps, args.batch, args.hidden,
        save_every=20, seed=args.seed, unhurried=args.unhurried_while,
    )  # fmt: skip
    if args.here:
        print(training())
        return
    executor = submitit.AutoExecutor(folder=args.log, cluster="slurm")
    executor.update_parameters(
        name="digits", timeout_min=60, gpus_per_node=args.gpus, slurm_signal_delay_s=60
    )
    job = executor.submit(training)
    print(job.job_id, flush=True)
    print(job.result())


if __name__ == "__main__":
    main()
