"""The entry of `dlq-nodeagent`: what must be settled before anything is imported; then
command.py.
"""

import gc
import os


def main() -> None:
    """Run the command. gRPC's C core reads once, when it is imported, whether it may write to
    stderr; it may not, unless the operator says so: what matters comes as the status of a call.
    What is imported stays: nobody looks through it for garbage.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    gc.disable()
    from dlq_nodeagent.command import main as command

    gc.freeze()
    gc.enable()
    command()
