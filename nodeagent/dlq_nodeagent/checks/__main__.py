"""`python3 -m dlq_nodeagent.checks KIND`: make one check, print its result, end with its verdict.

Exit codes: 0 passed, 1 failed, 3 not measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dlq_nodeagent.checks import compute, host, pair
from dlq_nodeagent.checks.result import (
    CheckResult,
    Figure,
    NotMeasured,
    WrongResult,
    judged,
    load_of_cores,
    planted,
)

KINDS: Mapping[str, Callable[[argparse.Namespace], Figure]] = {
    "memory": lambda asked: compute.memory(asked.seconds, asked.part),
    "matrix": lambda asked: compute.matrix(asked.seconds, asked.part),
    "disk": lambda asked: host.directory(asked.directory, asked.mib),
    "checkpoints": lambda asked: host.directory(_checkpoints(), asked.mib),
    "clock": lambda asked: host.clock(asked.server),
    "pull": lambda asked: host.pull(asked.image),
    "all_reduce": lambda asked: pair.all_reduce(asked.patience, asked.part),
}


def main(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Make the check that the words name, and print its result."""
    told = made(_asked(words), environment)
    sys.stdout.write(told.line() + "\n")
    return told.exit_code


def made(asked: argparse.Namespace, environment: Mapping[str, str]) -> CheckResult:
    """The result, whatever happens meanwhile."""
    kind, limit = asked.kind, asked.limit
    load = load_of_cores() if asked.heed_load else 0.0
    if planted(f"hung_{kind}", environment):
        threading.Event().wait()
    try:
        figure = KINDS[kind](asked)
    except WrongResult as error:
        return CheckResult(check=kind, limit=limit, passed=False, why=str(error))
    except NotMeasured as error:
        return CheckResult(check=kind, limit=limit, why=str(error))
    factor = planted(f"slow_{kind}", environment)
    if factor is not None:
        figure = replace(figure, value=figure.value * factor)
    return judged(kind, figure, limit, load=load)


def _checkpoints() -> str:
    path = os.environ.get("DLQ_CHECKPOINT_DIR", "")
    if not path:
        raise NotMeasured("the job has no directory for checkpoints")
    return path


def _asked(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dlq_nodeagent.checks", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--limit", type=float, default=0.0, help="0: every figure passes")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long memory and matrix run")
    parser.add_argument(
        "--part", type=float, default=1.0, help="of the usual sizes on GPUs, from 0 to 1"
    )
    parser.add_argument("--mib", type=int, default=64, help="how much is written")
    parser.add_argument("--directory", default="/tmp", help="of the check `disk`")
    parser.add_argument("--server", default="", help="HOST[:PORT] of a time server")
    parser.add_argument("--image", default="", help="of the check `pull`")
    parser.add_argument("--patience", type=float, default=20.0, help="for the other node, seconds")
    parser.add_argument("--heed-load", action="store_true", help="a busy node cannot fail")
    return parser.parse_args(words)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a library whose call hangs does not end by itself
