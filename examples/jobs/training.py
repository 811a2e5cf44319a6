"""A model in training, in its checkpointed parts: arrays, random state, step and loss log."""

import io
import json
import os
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import numpy as np

from digits import Floats


class Model(Protocol):
    """The parts that a job brings along."""

    rng: np.random.Generator  # its only source of chance

    def train_step(self) -> float:
        """Train on one batch; returns the loss before the update."""
        ...

    def arrays(self) -> dict[str, Floats]:
        """The live arrays by name: together with `rng`, all that the next step depends on."""
        ...

    def accuracy(self) -> float:
        """The part of the images it was not trained on that it gets right."""
        ...


class Training:
    """A model, the steps it has made, and one line in `out/loss.jsonl` for each of them."""

    def __init__(self, model: Model, out: Path | None) -> None:
        """`begin` or `load` comes next. Without `out` this is a follower's copy: no files."""
        self.model = model
        self.step = 0
        self._out = out
        self._log = LossLog(out / "loss.jsonl" if out else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def begin(self) -> Self:
        """Start from step 0, with an empty log."""
        self._log.cut(0)
        return self

    def load(self, directory: Path) -> Self:
        """Go on from a checkpoint: the log loses every line that was written after it."""
        self._log.cut(self.unpack((directory / "training.npz").read_bytes()))
        return self

    def save(self, directory: Path) -> None:
        """Write a checkpoint. The log goes to the disk first, so it is never behind."""
        self._log.sync()
        (directory / "training.npz").write_bytes(self.pack())

    def train_step(self) -> float:
        """One step of the model, logged."""
        return self.log(self.model.train_step())

    def log(self, loss: float) -> float:
        """Count one step as done and write its loss down."""
        self.step += 1
        self._log.append(self.step, loss)
        return loss

    def finish(self) -> None:
        """Write the final arrays to `out/weights.npz`."""
        if self._out is None:
            return
        self._log.sync()
        tmp = self._out / "weights.npz.tmp"
        with tmp.open("wb") as file:
            np.savez(file, allow_pickle=False, **self.model.arrays())
        tmp.replace(self._out / "weights.npz")

    def pack(self) -> bytes:
        """Everything the next step depends on, as the bytes of an .npz file."""
        rest = {
            "step": self.step,
            "rng": self.model.rng.bit_generator.state,
            "log_bytes": self._log.size,
        }
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, rest=np.array(json.dumps(rest)), **self.model.arrays())
        return packed.getvalue()

    def unpack(self, packed: bytes) -> int:
        """Take over the state from `pack`; returns the size the log had then, in bytes."""
        with np.load(io.BytesIO(packed), allow_pickle=False) as saved:
            rest = json.loads(str(saved["rest"]))
            for name, array in self.model.arrays().items():
                array[...] = saved[name]
        self.step = int(rest["step"])
        self.model.rng.bit_generator.state = rest["rng"]
        return int(rest["log_bytes"])


class LossLog:
    """An append-only file of {"step": ..., "loss": ...} lines that can be cut back."""

    def __init__(self, path: Path | None) -> None:
        """Without a path it keeps nothing."""
        self.size = 0
        self._file: BinaryIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes; raises ValueError when there are not as many."""
        if self._file is None:
            return
        had = os.fstat(self._file.fileno()).st_size
        if had < size:
            raise ValueError(f"{self._file.name} has {had} bytes, the checkpoint knows {size}")
        self._file.truncate(size)
        self.size = size

    def append(self, step: int, loss: float) -> None:
        """One line; every digit counts, so that equal curves are equal bytes."""
        if self._file is not None:
            self.size += self._file.write(json.dumps({"step": step, "loss": loss}).encode() + b"\n")

    def sync(self) -> None:
        """On return every line so far is on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()
