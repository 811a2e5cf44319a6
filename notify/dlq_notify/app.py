"""The entry of `dlq-notify`: settles the environment before any import, then runs command.py."""

import os


def main() -> None:
    """Run the command. gRPC's C core reads once, at import, whether it may write to stderr."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from dlq_notify.command import main as command

    command()
