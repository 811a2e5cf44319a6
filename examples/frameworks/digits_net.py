"""Shared by the examples of frameworks: the digits, a small network, the hash of its weights."""

import argparse
import gzip
import hashlib
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

DATA = Path(__file__).resolve().parent.parent / "data" / "digits" / "digits.csv.gz"
TRAINED = 1500


def make_repeatable(seed: int) -> None:
    """The same numbers on every run: one thread, fixed algorithms, fixed seed."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Images as rows from 0 to 1, and their labels."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)[:TRAINED]
    return torch.tensor(table[:, :64] / 16.0, dtype=torch.float32), torch.tensor(table[:, 64])


class Unhurried(nn.Module):
    """Passes its input on, slower and slower as long as a file is there, for a user that wants to
    look.

    A step takes a twentieth of the time since the first one, at least 20 ms. The training therefore
    has not ended when somebody stops it, and it stops soon.
    """

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self.file = file
        self.first_s: float | None = None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and self.file is not None and self.file.exists():
            self.first_s = self.first_s or time.monotonic()
            pause_s = max(0.02, (time.monotonic() - self.first_s) / 20)
            if pause_s > 1.0:
                print(f"a step of {pause_s:.1f} s", flush=True)
            time.sleep(pause_s)
        return images


def network(hidden: int, unhurried: Path | None = None) -> nn.Module:
    """Two hidden layers; see Unhurried."""
    return nn.Sequential(
        Unhurried(unhurried),
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def parser(what: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(
        description=what, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--steps", type=int, default=600)
    made.add_argument("--batch", type=int, default=64, help="images per process and step")
    made.add_argument("--hidden", type=int, default=256)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--unhurried-while", type=Path, metavar="FILE", help="is there")
    return made


def write_digest(model: nn.Module, directory: Path) -> str:
    """The hash of all weights, into `final.sha256`, which appears whole."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    draft = directory / "final.tmp"
    draft.write_text(digest.hexdigest() + "\n")
    draft.rename(directory / "final.sha256")
    return digest.hexdigest()
