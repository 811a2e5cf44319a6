"""How busy the inference side is: read from a file, by HTTP, or by a query of Prometheus. May
block.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit

from dlq_common.clock import SteadyClock

PROMETHEUS = "prometheus:"
_HTTP = ("http", "https")
TIMEOUT_S = 10.0
LARGEST_BYTES = 64 * 1024


class LoadUnknown(Exception):
    """The source does not tell how busy it is; in words why."""


def check_source(source: str) -> None:
    """Raises ValueError for what cannot be asked."""
    url = source.removeprefix(PROMETHEUS)
    if source.startswith(PROMETHEUS):
        if urlsplit(url).scheme not in _HTTP or not _query(urlsplit(url).query):
            raise ValueError(f"write {PROMETHEUS}http://HOST:9090?query=..., not {source[:80]!r}")
    elif source and urlsplit(source).scheme not in _HTTP and not _path(source).startswith("/"):
        raise ValueError(f"the whole path of a file, http:// or https://, not {source[:80]!r}")


def read_load(source: str, timeout_s: float = TIMEOUT_S, max_age_s: float = 0.0) -> float:
    """The share of its servers that are in use, from 0 to 1; of a file that was written in the last
    `max_age_s`, 0: whenever.

    Raises LoadUnknown.
    """
    try:
        load = _told(source, timeout_s, max_age_s)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it is the answer, and holds the connection
        raise LoadUnknown(f"{source[:80]}: {error}") from error
    if not 0.0 <= load <= 1.0:
        raise LoadUnknown(f"{source[:80]}: {load} is no share from 0 to 1")
    return load


def _told(source: str, timeout_s: float, max_age_s: float) -> float:
    if source.startswith(PROMETHEUS):
        parts = urlsplit(source.removeprefix(PROMETHEUS))
        query = quote(_query(parts.query))
        base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        return _found(_fetched(f"{base}/api/v1/query?query={query}", timeout_s))
    if urlsplit(source).scheme in _HTTP:
        return _number(_fetched(source, timeout_s))
    return _number(_last_line(Path(_path(source)), max_age_s))


def _query(told: str) -> str:
    """The query for Prometheus, as people write it: a + adds."""
    asked = (one.removeprefix("query=") for one in told.split("&") if one.startswith("query="))
    return unquote(next(asked, ""))


def _path(source: str) -> str:
    """Where a file lies, also as file:/run/load or file:///run/load."""
    return source.removeprefix("file://").removeprefix("file:")


def _found(text: str) -> float:
    """The one number that a query of Prometheus finds (its HTTP API, "instant queries")."""
    match json.loads(text):
        case {"data": {"resultType": "scalar", "result": [_, value]}}:
            return _as_number(value)
        case {"data": {"result": [{"value": [_, value]}]}}:
            return _as_number(value)
        case {"data": {"result": list(series)}}:
            found = f"{len(series)} series" if series else "nothing"
            raise ValueError(f"the query finds {found}, not one number")
        case {"error": str(why)}:
            raise ValueError(why[:200])
    raise ValueError("that is no answer of Prometheus")


def _number(text: str) -> float:
    """A number, or JSON with "busy", or the last cell of a line."""
    if not text.lstrip().startswith("{"):
        return _as_number(text.strip().split(",")[-1])
    answer: Mapping[str, Any] = json.loads(text)
    if "busy" not in answer:
        raise ValueError('its JSON has no "busy"')
    return _as_number(answer["busy"])


def _as_number(value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError):
            return float(value)
    raise ValueError(f"{str(value)[:40]!r} is no number")


def _last_line(path: Path, max_age_s: float) -> str:
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")  # a pipe would be waited for
    age_s = SteadyClock().now_s() - path.stat().st_mtime
    if 0 < max_age_s < age_s:
        raise ValueError(f"nobody has written it for {age_s:.0f} s")
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LARGEST_BYTES))
        lines = file.read(LARGEST_BYTES).decode(errors="replace").split("\n")
    whole = [line for line in lines if line.strip()]
    if not whole:
        raise ValueError("it is empty")
    return whole[-1]


def _fetched(url: str, timeout_s: float) -> str:
    """All of the answer: half of a number is another number."""
    # Most masters read no load by HTTP. Python's own library changes with no release of dlq.
    from http.client import HTTPException
    from urllib.request import urlopen

    clock, body = SteadyClock(), b""
    until_s = clock.boottime_s() + timeout_s
    try:
        with urlopen(url, timeout=timeout_s) as answer:
            while piece := answer.read1(LARGEST_BYTES):
                body += piece
                if len(body) > LARGEST_BYTES:
                    raise ValueError(f"it answers more than {LARGEST_BYTES} bytes")
                if clock.boottime_s() > until_s:
                    raise TimeoutError("timed out")
            if answer.length:
                raise ValueError("its answer was cut off")
    except HTTPException as error:
        raise OSError(str(error)) from error
    return body.decode()
