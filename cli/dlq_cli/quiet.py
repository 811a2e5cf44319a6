"""grpc without its own lines on stderr: it would write of lost connections between ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "GRPC_VERBOSITY"


@contextmanager
def quiet_grpc() -> Iterator[None]:
    """Around an import that may load grpc, which reads its verbosity once, then.

    The variable is gone afterwards: `submit --export ALL` must not hand it to a job. A value that
    the user has set stays.
    """
    if _VARIABLE in os.environ:
        yield
        return
    os.environ[_VARIABLE] = "NONE"
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
