"""Lines of a job's output that tell why it failed: GPU memory ran out, or another rank is gone.

Nothing kills a process that asks a GPU for too much memory, so its own words are all there is.
"""

import re

_GPU_OOM = re.compile(
    r"""
    \b OutOfMemoryError \b .* \b (CUDA|HIP|GPU) \b   # torch.OutOfMemoryError: CUDA out of memory.
    | \b (CUDA|HIP) (\ error:)? \ out\ of\ memory \b  # torch before 2.5; the driver's own words
    | \b CUDA_ERROR_OUT_OF_MEMORY \b
    | \b cudaErrorMemoryAllocation \b
    | \b RESOURCE_EXHAUSTED: .* \b (memory|OOM) \b    # JAX
    | \b ResourceExhaustedError: .* \b OOM \b         # TensorFlow
    """,
    re.VERBOSE,
)
_LONGEST = 1000


def says_gpu_oom(line: str) -> bool:
    """Whether a line of a program's output means that it asked a GPU for more memory than it
    has.
    """
    return _GPU_OOM.search(line[:_LONGEST]) is not None


_PEER_LOST = re.compile(
    r"""
    \b connection \s+ (was \s+)? (closed | reset | aborted | refused | lost) \b  # gloo, sockets
    | \b broken \s pipe \b
    | \b lost \s+ (connection \s to \s)? (a \s | the \s)? peer \b
    | \b (remote | peer) \s (process | rank | host) \b .{0,40} \b (exit | died | gone | closed | lost)
    | \b (ncclRemoteError | ECONNRESET | ConnectionResetError | BrokenPipeError) \b
    | \b watchdog \b .{0,200} \b timeout \b  # NCCL's: somebody did not come to a collective
    """,  # noqa: E501
    re.VERBOSE | re.IGNORECASE,
)


def says_peer_lost(line: str) -> bool:
    """Whether a line of a program's output means that another rank has gone away."""
    return _PEER_LOST.search(line[:_LONGEST]) is not None
