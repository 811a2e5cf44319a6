"""A data-parallel training by PyTorch with the tensors of a model: run under torchrun, tells its
truth.

    torchrun --nproc-per-node 2 ddp_job.py MODEL --iterations 8 [--shrunk N] [--record-from I]
    [--toggle]

Rank 0 prints one JSON object: seconds per iteration, its CPU seconds in each, and the sizes of
DDP's own buckets. With --toggle it is recorded in every second iteration, the first among them.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from support.model_shapes import MODELS, tensors

MODE_AT = 12  # of the control file


class Elsewhere(torch.autograd.Function):
    """Computing on another processor, as on a GPU: it takes its time, a third of it forward, and no
    CPU.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(seconds / 3)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds * 2 / 3)
        return gradient, None


class Shapes(torch.nn.Module):
    """Every parameter is used, one after the other, so that gradients are ready in reverse
    order.
    """

    def __init__(self, sizes: list[int], compute_s: float) -> None:
        super().__init__()
        self.compute_s = compute_s / len(sizes)
        self.parameters_in_order = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.full((size // 4,), 1e-3)) for size in sizes]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for parameter in self.parameters_in_order:
            x = x * (1 + 1e-9 * parameter.sum())
            if self.compute_s:
                x = Elsewhere.apply(x, self.compute_s)
        return x.sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--shrunk", type=int, default=1)
    parser.add_argument("--record-from", type=int)
    parser.add_argument("--toggle", action="store_true")
    parser.add_argument("--compute-s", type=float, default=0.0, help="seconds that take no CPU")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sizes = tensors(options.model, shrunk=options.shrunk)
    net = DistributedDataParallel(Shapes(sizes, options.compute_s))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    work = torch.ones(600, 600)
    began, cpu_s = [], [time.process_time()]
    for iteration in range(options.iterations):
        if iteration == options.record_from and dist.get_rank() == 0:
            record(on=True)
        if options.toggle:
            dist.barrier()
            if dist.get_rank() == 0:
                record(on=iteration % 2 == 0)
            dist.barrier()
        began.append(time.monotonic())
        for _ in range(8):
            work = work @ work / 600
        optimizer.zero_grad(set_to_none=False)
        net(torch.ones(4)).backward()
        optimizer.step()
        cpu_s.append(time.process_time())
    if dist.get_rank() == 0:
        told = net._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
        # Not the first, in which the buckets are laid out anew, and not the last, whose end nobody
        # sees.
        period_s = (began[-1] - began[1]) / (len(began) - 2)
        truth = {
            "period_s": period_s,
            "cpu_s": [later - sooner for sooner, later in pairwise(cpu_s)],
            "buckets": [int(word) for word in told.split(",")],
        }
        sys.stdout.write(f"{json.dumps(truth)}\n")
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


def record(*, on: bool) -> None:
    """Turn recording on or off, as the agent does it."""
    fd = os.open(Path(os.environ["DLQ_PROF_DIR"]) / "control", os.O_WRONLY)
    os.pwrite(fd, struct.pack("<I", on), MODE_AT)
    os.close(fd)


if __name__ == "__main__":
    main()
