"""Structured logs of the daemons: one JSON object a line, or readable text on a terminal.

Event names are fixed snake_case words, facts are keys. Foreign libraries that use `logging` come
out in the same form. structlog is imported only when logging is configured or a logger is asked
for, because the CLI shares this package and must start fast.

Where systemd reads the stream into its journal, each line begins with its priority (`<4>` for a
warning: sd-daemon(3)), which the journal takes off: `journalctl -p warning` then finds the notable
lines.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

from dlq_common.clock import Clock
from dlq_common.text.instants import format_instant

if TYPE_CHECKING:
    from types import TracebackType

    from structlog.typing import EventDict, FilteringBoundLogger, Processor

LEVELS = ("debug", "info", "warning", "error")
# Levels of Python -> priorities of syslog, as the journal wants them. A level in between is the one
# below it.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def configure_logging(
    clock: Clock, *, level: str = "info", stream: TextIO | None = None, as_json: bool | None = None
) -> None:
    """Send every log line of this process to `stream` (stdout), from `level` up.

    `as_json` None means: text if the stream is a terminal, JSON otherwise. May be called again; the
    last call counts.
    """
    import structlog

    stream = sys.stdout if stream is None else stream
    render_json = not stream.isatty() if as_json is None else as_json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _stamper(clock),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    finish: list[Processor] = (
        [
            # Never the local variables: tokens and keys are among them.
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(default=str),
        ]
        if render_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    in_journal = is_journal(stream)
    handler = (_JournalHandler if in_journal else logging.StreamHandler)(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    if in_journal:
        sys.excepthook = _log_uncaught


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger for one part (`master.loop`); bind facts with `.bind(...)`, log words with
    `.info`.
    """
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


def is_journal(stream: TextIO) -> bool:
    """Whether systemd has connected this stream with its journal, by JOURNAL_STREAM
    (device:inode).
    """
    said = os.environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return said == f"{found.st_dev}:{found.st_ino}"


def for_journal(text: str, level: int, stream: TextIO) -> str:
    """The text with the priority of this level of `logging` before each of its lines, if the stream
    is the journal's.
    """
    return _with_priority(text, level) if is_journal(stream) else text


class _JournalHandler(logging.StreamHandler[TextIO]):
    """Writes each line with its priority."""

    def format(self, record: logging.LogRecord) -> str:
        return _with_priority(super().format(record), record.levelno)


def _with_priority(text: str, level: int) -> str:
    priority = next((number for least, number in _PRIORITIES if level >= least), _DEBUG)
    return "\n".join(f"<{priority}>{line}" for line in text.splitlines())


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Log an uncaught exception as one line, at critical priority."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    get_logger("process").critical("uncaught_exception", exc_info=(kind, error, trace))


def _stamper(clock: Clock) -> Processor:
    """Times of the log are those of the product: the same axis as events and rows."""

    def stamp(_logger: object, _method: str, event: EventDict) -> EventDict:
        event["time"] = format_instant(clock.now_s())
        return event

    return stamp
