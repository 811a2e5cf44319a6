#!/usr/bin/env python3
"""Data-parallel training of a small network with plain PyTorch; knows nothing of any scheduler.

    torchrun --nproc-per-node 2 train_ddp.py --checkpoint-dir ckpt

On SIGTERM it finishes the step, saves, and exits 0. Started again, it goes on from the newest file.
With --if-stopped 1 it exits 1 instead, since 0 tells torchrun that all is done. Torchrun then
starts it again when others join or leave (--nnodes 1:4, --max-restarts above 0). --workers lets a
DataLoader fetch the images; --unhurried-while is for a user that wants to look.
"""

import argparse
import gc
import gzip
import hashlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

DATA = Path(__file__).resolve().parent.parent / "data" / "digits" / "digits.csv.gz"
TRAINED = 1500
KEEP = 3

stop_requested = False


def request_stop(number: int, frame: FrameType | None) -> None:
    global stop_requested
    stop_requested = True


def main() -> None:
    args = parse_arguments()
    signal.signal(signal.SIGTERM, request_stop)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network(args.hidden))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = load_newest(args.checkpoint_dir, model, optimizer)
    finished = train(args, first, model, optimizer)
    if finished and dist.get_rank() == 0:
        report(args.checkpoint_dir, model)
    dist.barrier()  # no rank tears down while another still works
    # Where DDP is the last to hold the group, it waits for a thread of it that waits for the GIL.
    del model
    gc.collect()
    dist.destroy_process_group()
    if not finished:
        sys.exit(args.if_stopped)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64, help="images per process and step")
    parser.add_argument(
        "--global-batch",
        type=int,
        metavar="N",
        help="images of a step, shared evenly by however many processes there are: an elastic job",
    )
    parser.add_argument("--step-log", type=Path, metavar="FILE", help="a line for each step done")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--if-stopped", type=int, default=0, metavar="CODE", help="exit code then")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers per process")
    parser.add_argument(
        "--unhurried-while", type=Path, metavar="FILE",
        help="while it is there a step takes a twentieth of the time since the first, at least 20 "
             "ms",
    )  # fmt: skip
    return parser.parse_args()


def network(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def train(
    args: argparse.Namespace, first: int, model: nn.Module, optimizer: torch.optim.Optimizer
) -> bool:
    """Train from step `first` to the last one; False when asked to stop before it."""
    if dist.get_rank() == 0:
        print(f"trains from step {first}", flush=True)
    began_s = time.monotonic()
    for step, (x, y) in enumerate(batches(args, first), first):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if args.unhurried_while and args.unhurried_while.exists():
            time.sleep(max(0.02, (time.monotonic() - began_s) / 20))
        done = step + 1
        if args.step_log and dist.get_rank() == 0:
            with args.step_log.open("a") as log:
                log.write(f"{done} {dist.get_world_size()}\n")
        stop = anyone_wants_to_stop()
        if stop or done % args.save_every == 0 or done == args.steps:
            if dist.get_rank() == 0:
                save(args.checkpoint_dir, done, model, optimizer)
                print(f"step {done}/{args.steps} loss {loss.item():.4f}", flush=True)
            dist.barrier()
        if stop and done < args.steps:
            return False
    return True


def batches(args: argparse.Namespace, first: int) -> Iterator[list[torch.Tensor]]:
    """The images of each step and their labels, for this rank, by this number of workers."""
    drawn = [drawn_for(args, step).tolist() for step in range(first, args.steps)]
    dataset = TensorDataset(*load_digits())
    return iter(DataLoader(dataset, batch_sampler=drawn, num_workers=args.workers))


def drawn_for(args: argparse.Namespace, step: int) -> torch.Tensor:
    """The images of this step and rank, drawn from the seed and the step alone."""
    generator = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
    if args.global_batch is not None:
        drawn = torch.randint(TRAINED, (args.global_batch,), generator=generator)
        return drawn[dist.get_rank() :: dist.get_world_size()]
    drawn = torch.randint(TRAINED, (dist.get_world_size(), args.batch), generator=generator)
    return drawn[dist.get_rank()]


def anyone_wants_to_stop() -> bool:
    """The ranks get the signal at different moments; all must stop after the same step."""
    flag = torch.tensor([int(stop_requested)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)[:TRAINED]
    return torch.tensor(table[:, :64] / 16.0, dtype=torch.float32), torch.tensor(table[:, 64])


def save(directory: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tmp = directory / "ckpt.tmp"
    torch.save(
        {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp
    )
    tmp.rename(directory / f"ckpt-{step:06d}.pt")
    for old in sorted(directory.glob("ckpt-*.pt"))[:-KEEP]:
        old.unlink()


def load_newest(directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step to go on with: 0, or that of the newest checkpoint, which is loaded."""
    found = sorted(directory.glob("ckpt-*.pt"))
    if not found:
        return 0
    saved = torch.load(found[-1], weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    print(f"rank {dist.get_rank()} resumes {found[-1].name}", flush=True)
    return int(saved["step"])


def report(directory: Path, model: nn.Module) -> None:
    """Write the hash of the final weights; before teardown, which sometimes aborts."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    (directory / "final.sha256").write_text(digest.hexdigest() + "\n")
    print(f"final weights {digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
