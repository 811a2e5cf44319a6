"""Structured logs of the daemons: one JSON object a line, or readable text on a terminal.

Event names are fixed snake_case words, facts are keys. Foreign libraries that use `logging` come
out in the same form. structlog is imported only when logging is configured or a logger is asked
for, because the CLI shares this package and must start fast.

Where systemd reads the stream into its journal, each line begins with its priority (`<4>` for a
warning: sd-daemon(3)), which the journal takes off: `journalctl -p warning` then finds the notable
lines.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from dlq_common.clock import Clock
from dlq_common.daemon.log_lines import LogLines
from dlq_common.text.instants import format_instant

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

    from structlog.typing import EventDict, FilteringBoundLogger, Processor

LEVELS = ("debug", "info", "warning", "error")
# Levels of Python -> priorities of syslog, as the journal wants them. A level in between is the one
# below it.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def configure_logging(
    clock: Clock,
    *,
    level: str = "info",
    stream: TextIO | None = None,
    as_json: bool | None = None,
    behind: bool = False,
    for_good: bool = False,
) -> None:
    """Send every log line of this process to `stream` (stdout), from `level` up.

    `as_json` None means: text if the stream is a terminal, JSON otherwise. `behind`: a thread
    writes what is no warning. May be called again; the last call counts. `for_good`: it is the last
    one, so each part makes its logger once, and not for each line.
    """
    structlog = _structlog()
    stream = sys.stdout if stream is None else stream
    keep_time_by(clock)
    in_journal = is_journal(stream)
    lines = LogLines(stream, behind=behind)
    finish = _finish(not stream.isatty() if as_json is None else as_json, stream)
    structlog.configure(
        # Ours go this short way: a line of the standard library's logging costs five times as much.
        processors=[structlog.stdlib.add_log_level, _stamp, *finish],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_: _Ours(lines, in_journal=in_journal),
        cache_logger_on_first_use=for_good,
    )
    handler = _Foreign(lines, in_journal=in_journal)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_logger_name,
                structlog.stdlib.add_log_level,
                _stamp,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    if in_journal:
        sys.excepthook = _log_uncaught


def keep_time_by(clock: Clock) -> None:
    """From now on lines have the times of this clock: the axis of events and rows."""
    _clocks[:] = [clock]


def _finish(render_json: bool, stream: TextIO) -> list[Processor]:
    """The last steps of every line, which make it text."""
    structlog = _structlog()
    if render_json:
        # Never the local variables: tokens and keys are among them.
        transformed = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [structlog.processors.ExceptionRenderer(transformed), _to_json]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger for one part (`master.loop`); bind facts with `.bind(...)`, log words with
    `.info`.
    """
    structlog = _structlog()
    logger: FilteringBoundLogger = structlog.get_logger(name)
    return logger


def tell_each(
    logger: FilteringBoundLogger, told: Iterable[tuple[str, Mapping[str, object]]]
) -> None:
    """Log words and their facts at level info. As JSON they are the lines that `logger.info` would
    make, without its steps for each of them, and with one time.
    """
    config = _structlog().get_config()
    if config["processors"][-1] is not _to_json:  # text for a terminal, or a test that listens
        for word, facts in told:
            logger.info(word, **facts)
    elif logger.is_enabled_for(logging.INFO):
        last = {"level": "info", "time": format_instant(_clocks[0].now_s())}
        lines = [_encode({**facts, "event": word, **last}) for word, facts in told]
        config["logger_factory"]().info(*lines)


def _structlog() -> ModuleType:
    """The library, without `rich`, which it imports for coloured tracebacks where it is installed.

    The CLI needs rich; in a daemon it is 70 modules and 5 MB that nothing uses.
    """
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        sys.modules["rich"] = None  # type: ignore[assignment]  # "import rich" fails at once
        try:
            import_module("structlog")
        finally:
            del sys.modules["rich"]
    return import_module("structlog")


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


class _Ours:
    """Takes finished lines from structlog; its methods are the levels."""

    def __init__(self, lines: LogLines, *, in_journal: bool) -> None:
        self._lines = lines
        self._in_journal = in_journal

    def debug(self, *texts: str) -> None:
        self._put(texts, logging.DEBUG)

    def info(self, *texts: str) -> None:
        self._put(texts, logging.INFO)

    def warning(self, *texts: str) -> None:
        self._put(texts, logging.WARNING)

    def error(self, *texts: str) -> None:
        self._put(texts, logging.ERROR)

    def critical(self, *texts: str) -> None:
        self._put(texts, logging.CRITICAL)

    def _put(self, texts: Sequence[str], level: int) -> None:
        if self._in_journal:
            texts = [_with_priority(text, level) for text in texts]
        self._lines.put(texts, level)


class _Foreign(logging.Handler):
    """Takes the records of libraries that use `logging`."""

    def __init__(self, lines: LogLines, *, in_journal: bool) -> None:
        super().__init__()
        self._lines = lines
        self._in_journal = in_journal

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a record that cannot be told ends nothing
            self.handleError(record)
            return
        level = record.levelno
        self._lines.put([_with_priority(text, level) if self._in_journal else text], level)


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


_clocks: list[Clock] = []
_encode = json.JSONEncoder(default=str).encode


def _stamp(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Times of the log are those of the product: the same axis as events and rows."""
    event["time"] = format_instant(_clocks[0].now_s())
    return event


def _to_json(_logger: object, _method: str, event: EventDict) -> str:
    return _encode(event)
