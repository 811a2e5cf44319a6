"""The agent as it serves: a process without the modules that only its beginning needs.

The command reads the configuration, checks the identity, and executes itself anew with what it
found. Libraries for options, configuration and certificates stay behind, with all that the start
has left in memory. The process keeps its number, so no supervisor sees a difference. A restarted
agent begins in the same way; the master and a silent line have no part in it.
"""

import asyncio
import logging
import os
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dlq_common.clock import SteadyClock
from dlq_common.daemon.logs import configure_logging, for_journal
from dlq_common.daemon.pinned import pin
from dlq_common.errors import DlqError
from dlq_common.ids import RandomIds
from dlq_nodeagent.config import AgentConfig
from dlq_nodeagent.daemon import run_agent
from dlq_nodeagent.devices.port import DevicesUnavailable
from dlq_nodeagent.line.channel import Channels
from dlq_nodeagent.quiet import log_what_python_prints
from dlq_nodeagent.shim.binary import ShimMissing
from dlq_nodeagent.state.journal import JournalDamaged

ORDERS = "DLQ_AGENT_ORDERS"
"""The variable with the number of the descriptor that the orders come by."""
TOLD = (DlqError, DevicesUnavailable, ShimMissing, JournalDamaged)
"""The agent's own errors: one line on stderr says why."""
FAILURE = 1

_NAME = "dlq-nodeagent"
_WITHOUT_COLUMNS = ("-X", "no_debug_ranges")
"""Lines of a traceback have no columns, which saves 0.3 MB."""


@dataclass(frozen=True, slots=True)
class ServingOrders:
    """All that the serving process is told by the command."""

    config: AgentConfig
    channels: Channels
    version: str


def begin_anew(orders: ServingOrders) -> NoReturn:
    """Execute this program again, to serve."""
    descriptor = os.memfd_create("orders", 0)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        pickle.dump(orders, file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.environ[ORDERS] = str(descriptor)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *_WITHOUT_COLUMNS, *sys.orig_argv[1:]])


def serve() -> NoReturn:
    """Serve until SIGTERM, as ordered. Jobs outlive the agent."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(_NAME)
    with os.fdopen(int(os.environ.pop(ORDERS)), "rb") as file:
        orders: ServingOrders = pickle.load(file)
    pin()
    clock = SteadyClock()
    configure_logging(clock, level=orders.config.log_level, for_good=True)
    log_what_python_prints()
    agent = run_agent(
        orders.config,
        channels=orders.channels,
        clock=clock,
        ids=RandomIds(clock),
        version=orders.version,
    )
    try:
        code = asyncio.run(agent)
    except TOLD as error:
        fail(error)
    _leave(code)


def fail(error: Exception, code: int = FAILURE) -> NoReturn:
    """End with one line that says why."""
    words = for_journal(f"{_NAME}: {error}", logging.ERROR, sys.stderr)
    sys.stderr.write(f"{words}\n")
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End now. The interpreter's own exit would wait for threads in a dead file system."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
