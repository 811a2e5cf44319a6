"""How the frameworks say that a GPU's memory was not enough: it kills nobody, so their words are
all.
"""

import re

_SAID = re.compile(
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
    return _SAID.search(line[:_LONGEST]) is not None
