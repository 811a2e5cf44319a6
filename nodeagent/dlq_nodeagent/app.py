"""The entry of `dlq-nodeagent`: it prepares the process before any import.

It then runs command.py, or serving.py in the process that serves.
"""

import gc
import importlib.util
import os
import sys
from collections.abc import Callable

_LEAN = ("ssl", "_ssl", "_hashlib")
"""OpenSSL. gRPC brings a TLS of its own, and Python has checksums of its own."""


def main() -> None:
    """Run the command.

    gRPC's C core reads once, at import, whether it may write to stderr. It may not, unless the
    operator allows it: a call's status reports the errors that matter. Imported modules stay for
    ever, so the garbage collector skips them.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    gc.disable()
    command = entry(serves="DLQ_AGENT_ORDERS" in os.environ)
    gc.collect()
    gc.freeze()
    gc.enable()
    command()


def entry(*, serves: bool) -> Callable[[], object]:
    """The function to run, with only the modules that it needs."""
    if not serves:
        from dlq_nodeagent.command import main as command

        return command
    if importlib.util.find_spec("_sha256") is not None:
        sys.modules.update(dict.fromkeys(_LEAN))  # type: ignore[arg-type]
    from dlq_nodeagent.serving import serve

    return serve
