"""A master whose disk takes seconds for each commit: real daemons, each sync delayed
(tests/support/failing_disk.c).
"""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlq.v1 import node_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.nodes import Nodes
from dlq_common.errors import DlqError
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/loop/test_control_slow_commits.py",
    ),
]

SHIM = Path(__file__).parents[1] / "support" / "failing_disk.c"
COMMIT_MS = 2_300
UP = {node_pb2.NODE_STATE_UP}
SILENCE_S = (8, 12)  # of a node that is suspect, and unreachable


@pytest.fixture(scope="module")
def slow_disk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The preload library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM], check=True)
    return str(library)


@pytest.fixture
def daemons(tmp_path: Path, slow_disk: str) -> Iterator[Daemons]:
    with Daemons(tmp_path, ("n1", "n2"), silence_s=SILENCE_S).up() as made:
        made.stop("master")
        preload = {"LD_PRELOAD": slow_disk, "DISK_FILE": "-wal", "DISK_DELAY_MS": str(COMMIT_MS)}
        made.start("master", **preload)
        made.wait_for("master")
        yield made


@contextmanager
def submissions(daemons: Daemons) -> Iterator[None]:
    """Somebody submits without a pause, so that the master always commits."""
    over = threading.Event()

    def submit(line: Connection) -> None:
        spec = daemons.ledger_job(0.1, 0)
        spec.hold = True
        while not over.is_set():
            try:
                Jobs(line).submit(spec)
            except DlqError:
                continue

    with daemons.connect() as line:
        thread = threading.Thread(target=submit, args=(line,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_a_dead_node_is_found_and_a_living_one_is_not_given_up(daemons: Daemons) -> None:
    seen: list[int] = []
    with daemons.connect() as line, submissions(daemons):
        nodes = Nodes(line)

        def state(name: str) -> int:
            return nodes.get(name).state

        wait_until(lambda: {state(name) for name in daemons.agents} == UP, what="both are up")
        daemons.kill("n2")

        def is_given_up() -> bool:
            seen.append(state("n1"))
            return state("n2") == node_pb2.NODE_STATE_UNREACHABLE

        wait_until(is_given_up, what="the dead node is unreachable", timeout_s=60.0)
    assert set(seen) == UP
    assert "master_lagged" in daemons.log("master"), "its commits were slow"
