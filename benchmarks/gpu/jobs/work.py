"""The work of a training, behind one port: PyTorch on CUDA, or a stand-in that is named.

`cuda` is the real thing. `torch-cpu` runs the same code on the CPU. `numpy` is a small training
beside CUDA's driver, which may be a fake (tests/support/fake_cuda.c).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from pathlib import Path
from typing import Any, Protocol

VARIABLE = "GPU_STAND_IN"
# Only tests set this: faults of the stand-in `numpy` that a check must find, such as `save`.
SPOILED = "GPU_SPOILED"
# cuBLAS is reproducible with this: docs.nvidia.com/cuda/cublas, "Results Reproducibility".
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
LAYERS = 8
SEED = 20_261


class Work(Protocol):
    """A model, its optimizer and its data, all from one seed."""

    versions: dict[str, str]
    """Names and versions of the libraries and of the device."""

    def step(self, number: int) -> float:
        """Train once, wait for the device, and return the loss."""
        ...

    def save(self, directory: Path) -> None:
        """Write the state."""
        ...

    def load(self, directory: Path) -> None:
        """Take up a state."""
        ...

    def digest(self) -> str:
        """SHA-256 of the state."""
        ...

    def memory_bytes(self) -> int:
        """Bytes that are held on the GPU, data and state."""
        ...


def work(nbytes: int) -> Work:
    """The work that the environment names, with so many bytes on the GPU."""
    stand_in = os.environ.get(VARIABLE, "")
    if stand_in == "numpy":
        return NumpyWork(nbytes)
    return TorchWork(nbytes, "cpu" if stand_in else "cuda")


class TorchWork:
    """Eight square layers in bf16 with momentum; a bank of batches fills the rest of the bytes."""

    def __init__(self, nbytes: int, device: str) -> None:
        os.environ.setdefault(WORKSPACE, ":4096:8")
        import torch

        self._torch: Any = torch
        torch.use_deterministic_algorithms(True)
        self._device = device
        self._width = 4096 if device == "cuda" else 128
        draw = torch.Generator(device=device).manual_seed(SEED)
        kind: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        square = (self._width, self._width)
        self._weights = [
            (torch.randn(square, generator=draw, **kind) / self._width**0.5).requires_grad_()
            for _ in range(LAYERS)
        ]
        self._momenta = [torch.zeros(square, **kind) for _ in range(LAYERS)]
        each = 2 * self._width**2
        count = max(2, (nbytes - 3 * LAYERS * each) // each) if device == "cuda" else 4
        self._bank = [torch.randn(square, generator=draw, **kind) for _ in range(count)]
        self.versions = {"torch": torch.__version__, "device": device}
        if device == "cuda":
            self.versions["device"] = torch.cuda.get_device_name(0)
            self.versions["cuda"] = str(torch.version.cuda)
            self.versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))

    def step(self, number: int) -> float:
        """See the port."""
        torch = self._torch
        found = self._bank[number % len(self._bank)]
        for weight in self._weights:
            found = torch.nn.functional.gelu(found @ weight)
        loss = found.float().square().mean()
        loss.backward()
        with torch.no_grad():
            for weight, momentum in zip(self._weights, self._momenta, strict=True):
                momentum.mul_(0.9).add_(weight.grad)
                weight.add_(momentum, alpha=-0.01)
                weight.grad = None
        return float(loss.item())

    def save(self, directory: Path) -> None:
        """See the port."""
        self._torch.save(self._state(), directory / "state.pt")

    def load(self, directory: Path) -> None:
        """See the port."""
        found = self._torch.load(directory / "state.pt", map_location="cpu", weights_only=True)
        with self._torch.no_grad():
            for mine, its in zip(self._tensors(), found, strict=True):
                mine.copy_(its)

    def digest(self) -> str:
        """See the port."""
        found = hashlib.sha256()
        for tensor in self._tensors():
            held = tensor.detach().cpu().contiguous()  # without numpy, which may not be there
            found.update(ctypes.string_at(held.data_ptr(), held.numel() * held.element_size()))
        return found.hexdigest()

    def memory_bytes(self) -> int:
        """See the port."""
        if self._device == "cuda":
            return int(self._torch.cuda.memory_allocated())
        return sum(it.numel() * it.element_size() for it in [*self._tensors(), *self._bank])

    def _tensors(self) -> list[Any]:
        return [*self._weights, *self._momenta]

    def _state(self) -> list[Any]:
        return [tensor.detach() for tensor in self._tensors()]


class NumpyWork:
    """One small layer in numpy; the bytes are held by CUDA's driver, which is told to be busy."""

    def __init__(self, nbytes: int) -> None:
        import numpy

        from benchmarks.gpu.jobs.cuda import Driver

        self._numpy: Any = numpy
        self._driver = Driver()
        self._driver.use()
        self._driver.hold(nbytes)
        if self._driver.has("dlqFakeBusy"):
            self._driver.call("dlqFakeBusy", 97)
        draw = numpy.random.default_rng(SEED)
        self._bank = draw.standard_normal((4, 32, 32))
        self._weights = draw.standard_normal((32, 32)) / 32**0.5
        self._nbytes = nbytes
        self.versions = {"numpy": numpy.__version__, "device": "stand-in"}

    def step(self, number: int) -> float:
        """See the port."""
        data = self._bank[number % len(self._bank)]
        made = data @ self._weights
        self._weights -= 0.001 * (data.T @ made) / len(data)
        return float((made**2).mean())

    def save(self, directory: Path) -> None:
        """See the port."""
        self._numpy.save(directory / "state.npy", self._weights)

    def load(self, directory: Path) -> None:
        """See the port."""
        self._weights[:] = self._numpy.load(directory / "state.npy")
        if "save" in os.environ.get(SPOILED, "").split():
            self._weights.view("uint64")[0, 0] ^= self._numpy.uint64(1)  # the last bit of one

    def digest(self) -> str:
        """See the port."""
        return hashlib.sha256(self._weights.tobytes()).hexdigest()

    def memory_bytes(self) -> int:
        """See the port."""
        return self._nbytes if self._driver.is_whole() else 0
