"""Virtual agents in a process of their own, so that their CPU time is told apart: `python -m
benchmarks.race.fleet ROOT COUNT`.

Says "ready" when all have joined, and ends at the end of stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from benchmarks.support.crowd import GPUS
from benchmarks.support.virtual_nodes import Fleet
from dlq_client.line.identity import load_identity
from dlq_master.serving import read_authority


async def _stand(root: Path, count: int) -> None:
    identity = load_identity(Path(os.environ["DLQ_HOME"]))
    assert identity is not None
    authority = read_authority(root / "master", "bench")
    fleet = Fleet(identity.address, authority, count, GPUS)
    await fleet.join()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await fleet.close()


def main() -> None:
    """Stand until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    asyncio.run(_stand(options.root, options.count))


if __name__ == "__main__":
    main()
