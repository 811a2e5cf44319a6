"""How busy the inference side is: read from a file, by HTTP, or by a query of Prometheus. May block."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import urlopen

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
        if urlsplit(url).scheme not in _HTTP or "query" not in parse_qs(urlsplit(url).query):
            raise ValueError(f"write {PROMETHEUS}http://HOST:9090?query=..., not {source[:80]!r}")
    elif "://" in source and urlsplit(source).scheme not in _HTTP:
        raise ValueError(f"a file, http:// or https://, not {source[:80]!r}")


def read_load(source: str) -> float:
    """The share of its servers that are in use, from 0 to 1. Raises LoadUnknown."""
    try:
        told = _told(source)
    except (OSError, URLError, ValueError, LookupError, TypeError) as error:
        raise LoadUnknown(f"{source[:80]}: {error}") from error
    if not 0.0 <= told <= 1.0:
        raise LoadUnknown(f"{source[:80]}: {told} is no share from 0 to 1")
    return told


def _told(source: str) -> float:
    if source.startswith(PROMETHEUS):
        parts = urlsplit(source.removeprefix(PROMETHEUS))
        query = quote(parse_qs(parts.query)["query"][0])
        base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        found = json.loads(_fetched(f"{base}/api/v1/query?query={query}"))
        return float(found["data"]["result"][0]["value"][1])
    if "://" in source:
        return _number(_fetched(source))
    return _number(_last_line(Path(source)))


def _number(text: str) -> float:
    """A number, or JSON with "busy", or the last cell of a line."""
    told: Any = json.loads(text) if text.lstrip().startswith("{") else text.strip().split(",")[-1]
    return float(told["busy"] if isinstance(told, Mapping) else told)


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LARGEST_BYTES))
        lines = file.read(LARGEST_BYTES).decode(errors="replace").split("\n")
    whole = [line for line in lines if line.strip()]
    if not whole:
        raise ValueError("it is empty")
    return whole[-1]


def _fetched(url: str) -> str:
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read(LARGEST_BYTES)
    return body.decode()
