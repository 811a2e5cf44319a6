"""The line that all objects of one connection share: calls, the watch, and messages to people.

The line outlives its `Cluster` for as long as a job of it is held. It is closed at the end of the
program at the latest, because an open stream would keep the program from ending.
"""

from __future__ import annotations

import logging
import weakref
from pathlib import Path
from typing import Protocol

from dlq_api.watching import JobWatch
from dlq_cli.app import App
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_common.clock import Clock

LOG = logging.getLogger("dlq")


class ProgramCaller(App):
    """A caller that is a program: messages to people go to the logger `dlq`."""

    def say(self, text: str) -> None:
        LOG.warning("%s", text)


class ClusterLine:
    """One connection, and one stream for all that wait on it. Threads may share it."""

    def __init__(self, app: App) -> None:
        """Unauthenticated when nobody is logged in."""
        self.app = app
        self.connection: Connection = app.connection()
        self.jobs = Jobs(self.connection)
        self.watch = JobWatch(self.connection, app.say)
        self._end = weakref.finalize(self, _close, self.watch, app)

    @property
    def clock(self) -> Clock:
        return self.connection.clock

    def say(self, text: str) -> None:
        """A message to people; none about a line that its owner has closed."""
        if self._end.alive:
            self.app.say(text)

    def close(self) -> None:
        """End the waits with an error, then the connection. A second call does nothing."""
        self._end()


class Connected(Protocol):
    """The owner of a line, such as a `dlq.Cluster`."""

    @property
    def line(self) -> ClusterLine: ...


def caller(home: Path | None, patience_s: float | None) -> App:
    """The caller with the settings of `dlq`; of the patience only if it is given."""
    flags = {} if patience_s is None else {"patience_s": str(patience_s)}
    return ProgramCaller(home=home, flags=flags)


def _close(watch: JobWatch, app: App) -> None:
    watch.close()
    app.close()
