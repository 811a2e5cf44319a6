"""The entry of `dlq-notify`: settles the environment before any import, then runs command.py."""

import os
import sys


def main() -> None:
    """Run the command. gRPC's C core reads once, at import, whether it may write to stderr.
    sqlite-utils imports numpy where it is there, which are 11 MB for nothing here.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    sys.modules["numpy"] = None  # type: ignore[assignment]  # so it cannot be imported
    from dlq_notify.command import main as command

    command()
