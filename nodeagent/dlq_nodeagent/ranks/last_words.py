"""The last output of a failed rank: found on its node, sent with its end, shown beside its name."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from dlq_common.failure_signs import says_gpu_oom, says_peer_lost
from dlq_nodeagent.model.launch import CHECK
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import ExitRecord, ExitWhy, Handle, Runtime, RuntimeFault

_LINES = 5
_LINE = 200  # characters
_BYTES = 16_384
_SHORTEST_SECRET = 4  # characters; shorter words occur everywhere and hide nothing
_REDACTED = "[secret]"


def no_secrets(launch: Launch) -> tuple[bytes, ...]:
    """Jobs without containers are given none."""
    return ()


def is_told(launch: Launch, record: ExitRecord) -> bool:
    """Whether the master hears its last lines: of a failure, and of a check, whose result they
    are.
    """
    return CHECK in launch.environment or failed_by_itself(record)


def failed_by_itself(record: ExitRecord) -> bool:
    """Whether it ended badly, without an order from here."""
    return record.why is ExitWhy.EXITED and bool(record.code or record.signal)


def last_lines(
    runtime: Runtime, handle: Handle, task: str = "", secrets: Iterable[bytes] = ()
) -> tuple[str, ...]:
    """The last lines of its output that are not empty, of that task alone if it has several.

    Before them come lines about too little GPU memory, where launchers have written more since.

    These are lines of `dlq logs`, so they go to the same people. They may hold anything: control
    characters are the reader's business. The master keeps it, so the content of its `secrets` is
    left out wherever it is printed unchanged.
    """
    data, end = _tail(runtime, handle)
    prefix = f"[{task}] " if task else ""
    hidden = _hidden(secrets)
    if hidden and len(data) < end:
        data = data.partition(b"\n")[2]  # the first line may begin within a secret
    lines = _without(hidden, data.decode("utf-8", "replace")).splitlines()
    mine = (line.removeprefix(prefix) for line in lines if line.startswith(prefix))
    said = [line[:_LINE] for line in mine if line.strip()]
    telling = [line for line in said[:-_LINES] if says_gpu_oom(line)][-1:]
    return (*telling, *said[-_LINES:][len(telling) :])


def blames_others(runtime: Runtime, handle: Handle) -> bool:
    """Whether the end of its output says that a rank elsewhere has gone away."""
    data, _ = _tail(runtime, handle)
    return any(map(says_peer_lost, data.decode("utf-8", "replace").splitlines()))


def _tail(runtime: Runtime, handle: Handle) -> tuple[bytes, int]:
    """The end of its output, and how much there was of it in all."""
    try:
        end = runtime.read_log(handle, 1 << 62, 0).end
        return runtime.read_log(handle, max(0, end - _BYTES), _BYTES).data, end
    except (RuntimeFault, OSError):
        return b"", 0


def _hidden(secrets: Iterable[bytes]) -> re.Pattern[str] | None:
    """Lines of secrets, values behind `NAME=` or `USER:`, and texts in JSON; the longest first."""
    found = {word.strip() for content in secrets for word in _words(content)}
    telling = sorted((word for word in found if len(word) >= _SHORTEST_SECRET), key=len)
    return re.compile("|".join(map(re.escape, reversed(telling)))) if telling else None


def _words(secret: bytes) -> Iterator[str]:
    text = secret.decode("utf-8", "replace")
    for line in text.splitlines():
        yield line
        yield from (line.partition(sign)[2] for sign in "=:")
    with suppress(ValueError, RecursionError):
        yield from _texts(json.loads(text))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _without(hidden: re.Pattern[str] | None, text: str) -> str:
    return text if hidden is None else hidden.sub(_REDACTED, text)
