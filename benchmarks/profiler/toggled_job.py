"""A DDP job that switches the profiler's recording at every iteration, and notes the cost of each.

    torchrun --nproc-per-node 2 toggled_job.py NOTES PAIRS

AlexNet's layers (61 million parameters) on small images. Rank r writes NOTES.r: a line "OFF ON" for
each pair of iterations, CPU seconds of the process.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

MODE_AT = 12  # docs/reference/profiler-files.md


def alexnet() -> nn.Module:
    """As in torchvision, for images of 64 by 64 pixels."""
    widths = [(3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1)]
    layers: list[nn.Module] = []
    for given, made, kernel, stride, padding in [*widths, (256, 256, 3, 1, 1)]:
        layers += [nn.Conv2d(given, made, kernel, stride, padding), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d((6, 6)), nn.Flatten()]
    layers += [nn.Linear(256 * 36, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


def main() -> None:
    """Two iterations to warm up, then pairs; the first half of a pair changes from pair to pair."""
    notes, pairs = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.parallel.DistributedDataParallel(alexnet())
    images = torch.randn(2, 3, 64, 64)
    control = mmap.mmap(os.open(Path(os.environ["DLQ_PROF_DIR"], "control"), os.O_RDWR), 64)

    def iteration(on: bool) -> float:
        if rank == 0:
            struct.pack_into("<I", control, MODE_AT, on)
        dist.barrier()
        begun_s = time.process_time()
        model.zero_grad()
        model(images).square().mean().backward()
        dist.barrier()
        return time.process_time() - begun_s

    for on in (False, True):
        iteration(on)
    lines = []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        cost = {on: iteration(on) for on in order}
        lines.append(f"{cost[False]} {cost[True]}\n")
    notes.with_name(f"{notes.name}.{rank}").write_text("".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
