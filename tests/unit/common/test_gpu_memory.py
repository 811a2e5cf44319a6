"""The words for too little GPU memory, as the frameworks print them."""

import pytest

from dlq_common.failure_signs import says_gpu_oom


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a "
        "total",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 3; 79 "
        "GiB)",
        "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB",
        "RuntimeError: CUDA error: out of memory",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 GiB.",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 8589934592 bytes.",
        "failed to allocate 2.0G: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "tensorflow...errors_impl.ResourceExhaustedError: {{node MatMul}} OOM when allocating "
        "tensor",
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
    ],
)
def test_these_mean_it(line: str) -> None:
    assert says_gpu_oom(line)


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745 GiB",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "ERROR: training ran out of data",
        "",
    ],
)
def test_these_do_not(line: str) -> None:
    assert not says_gpu_oom(line)


def test_a_line_made_to_be_slow_is_not() -> None:
    assert not says_gpu_oom("RESOURCE_EXHAUSTED:" * 1_000_000)
