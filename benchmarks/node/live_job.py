"""A job under torchrun that trains nothing, saves when asked, and notes its steps on
CLOCK_BOOTTIME.

    torchrun live_job.py NOTES DIRECTORY MIB

Needs PyTorch, and knows nothing of any scheduler. Rank 0 appends JSON lines {"world", and step ->
instant} to NOTES, one when it has loaded and one when it has saved. Its checkpoint is one file of
MIB mebibytes.
"""

import time

BEGUN_S = time.clock_gettime(time.CLOCK_BOOTTIME)  # the interpreter's first act

import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from types import FrameType  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

STEP_S = 0.01  # short, so that the end of a step adds little to the measured time
asked = False


def ask(number: int, frame: FrameType | None) -> None:
    global asked
    asked = True


def main(notes: Path, directory: Path, mib: int) -> None:
    """Load, step until one of all ranks is asked to stop, save, leave."""
    signal.signal(signal.SIGTERM, ask)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    load_begin_s = now_s()
    found = sorted(directory.glob("ckpt-*.pt"))
    if found:
        torch.load(found[-1], weights_only=True)
    note(notes, begun=BEGUN_S, load_begin=load_begin_s, load_end=now_s())
    while not anyone_is_asked():
        time.sleep(STEP_S)
    stopped_s = now_s()
    if dist.get_rank() == 0:
        content = torch.zeros(mib << 20, dtype=torch.uint8)
        torch.save(content, directory / "tmp")
        (directory / "tmp").rename(directory / f"ckpt-{round(1e3 * stopped_s):015d}.pt")
        for old in found:
            old.unlink()
    note(notes, stopped=stopped_s, saved=now_s())
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(1 if int(os.environ["TORCHELASTIC_MAX_RESTARTS"]) else 0)


def anyone_is_asked() -> bool:
    flag = torch.tensor([int(asked)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def note(notes: Path, **times_s: float) -> None:
    if dist.get_rank() == 0:
        with notes.open("a") as file:
            file.write(json.dumps({"world": dist.get_world_size(), **times_s}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
