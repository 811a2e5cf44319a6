"""Sends to the log the messages that Python itself would print."""

import logging
import sys
import threading
from types import TracebackType

from dlq_common.daemon.logs import get_logger

log = get_logger("nodeagent.quiet")


def log_what_python_prints() -> None:
    """Uncaught exceptions of any thread, and warnings, become lines of the log."""
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    logging.captureWarnings(True)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("agent_failed", error=repr(error), exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    log.error("thread_failed", error=repr(args.exc_value), exc_info=args.exc_value)


def _unraisable(args: "sys.UnraisableHookArgs") -> None:
    log.error("exception_ignored", error=repr(args.exc_value), where=args.err_msg)
