"""The one table of the streams below `/v1`: paths, parameters, content types and refusals.

The handlers read their requests by it, and `/openapi.json` describes it. A stream has no tag, so
it is never answered with 304.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dlq_web.api.params import Param, flag, text, whole

SSE, LINES, PLAIN = "text/event-stream", "application/x-ndjson", "text/plain"
LAST_EVENT_ID: Final = "Last-Event-ID"
ATTEMPT, OFFSET = "Dlq-Attempt", "Dlq-Offset"
_MOST = 2**63 - 1
_MOST_SMALL = 2**31 - 1


class StreamRead(NamedTuple):
    """A stream: the parameters of a call, and all the forms of its answer."""

    path: str  # below /v1; {name} is a parameter of the path
    summary: str
    help: str
    params: Sequence[Param]
    kinds: Mapping[str, str]  # content types of the answer, and their words
    refusals: Mapping[int, str]  # statuses, and their words
    asked: Mapping[str, str] = {}  # headers of the request
    told: Mapping[str, str] = {}  # headers of the answer, each a whole number

    def of_path(self) -> list[Param]:
        """The parameters within the path."""
        return [param for param in self.params if f"{{{param.name}}}" in self.path]

    def of_query(self) -> list[Param]:
        """All others."""
        return [param for param in self.params if f"{{{param.name}}}" not in self.path]


_REFUSALS = {
    401: "Nobody is signed in.",
    403: "The caller may not read this, or the request is another page's.",
    429: "Too many streams or requests of one person.",
    503: "The master is away, or has no room.",
}

EVENTS: Final = StreamRead(
    "/events",
    "Events as they come, of the jobs that the caller may see.",
    "The answer is server-sent events where Accept names text/event-stream, or where there is no"
    " Accept. Otherwise it is JSON lines. It ends after ten minutes, and earlier where its reader"
    " lags behind. The reader then comes back with the last number it has seen.",
    (
        whole("after", "cursor", "Events after this number; -1 and without it: from now on.",
              least=-1, most=_MOST),
    ),
    {
        SSE: "Each event has its number as `id`, and its facts in JSON as `data`. The event `away`"
        " says that the master does not answer.",
        LINES: "A line of JSON for each event, with `event` and for most a `job`. An empty line"
        " says that the stream goes on.",
    },
    {
        400: "A parameter is wrong or unknown.",
        **_REFUSALS,
        410: "No such event has happened, or events after it are cut from the journal: read the"
        " state anew.",
    },
    asked={
        LAST_EVENT_ID: "The number of the last event that the reader has seen. It counts instead"
        " of `after`; a browser sends it by itself."
    },
)  # fmt: skip

LOGS: Final = StreamRead(
    "/jobs/{job}/logs",
    "The output of one rank of a job, from an offset on.",
    "The answer is JSON lines where Accept names application/x-ndjson. Otherwise it is the output"
    " itself. It ends after fifteen minutes, and the reader then comes back with the next offset.",
    (
        text("job", "job_id", "The number of a job, or of a task such as 12_4."),
        whole("attempt", "attempt", "Of this attempt; 0 and without it: of the last one.",
              most=_MOST_SMALL),
        whole("rank", "node_rank", "Of this node rank; without it of rank 0.", most=_MOST_SMALL),
        whole("offset", "offset", "The first byte; negative: so many bytes before the end.",
              least=-_MOST, most=_MOST),
        flag("follow", "follow", "Whether to go on until the attempt has ended."),
    ),
    {
        PLAIN: "The bytes of the output.",
        LINES: "A line of JSON for each piece, with `attempt`, `offset`, `next_offset`, `text` and"
        " `end`. The last line has `end`, or the refusal that ended the stream as `error`.",
    },
    {
        400: "A parameter is wrong or unknown, or the job has not started yet.",
        **_REFUSALS,
        404: "There is no such job or attempt, or its output is gone.",
        503: "The master or the node is away, or there is no output yet.",
    },
    told={
        ATTEMPT: "The attempt, where output came within a second.",
        OFFSET: "The offset of the first byte, where output came within a second.",
    },
)  # fmt: skip

STREAMS: Final = (EVENTS, LOGS)
