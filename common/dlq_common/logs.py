"""Structured logs of the daemons: one JSON object a line, or readable text on a terminal.

Event names are fixed snake_case words, facts are keys. Foreign libraries that use `logging` come
out in the same form. structlog is imported only when logging is configured or a logger is asked
for, because the CLI shares this package and must start fast.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, TextIO

from dlq_common.clock import Clock
from dlq_common.instants import format_instant

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor

LEVELS = ("debug", "info", "warning", "error")


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
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger for one part (`master.loop`); bind facts with `.bind(...)`, log words with `.info`."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


def _stamper(clock: Clock) -> Processor:
    """Times of the log are those of the product: the same axis as events and rows."""

    def stamp(_logger: object, _method: str, event: EventDict) -> EventDict:
        event["time"] = format_instant(clock.now_s())
        return event

    return stamp
