"""What the examples of frameworks share: the digits, a small network, and the hash of its weights."""

import gzip
import hashlib
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
    """Images as rows from 0 to 1, and what they show."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)[:TRAINED]
    return torch.tensor(table[:, :64] / 16.0, dtype=torch.float32), torch.tensor(table[:, 64])


def network(hidden: int) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


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
