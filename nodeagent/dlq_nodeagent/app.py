"""The entry of `dlq-nodeagent`: settles the environment before any import, then runs command.py."""

import gc
import os


def main() -> None:
    """Run the command. gRPC's C core reads once, at import, whether it may write to stderr. It may
    not, unless the operator allows it: a call's status reports the errors that matter. Imported
    modules stay for ever, so the garbage collector skips them.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    gc.disable()
    from dlq_nodeagent.command import main as command

    gc.freeze()
    gc.enable()
    command()
