"""Every page of the web server, by the routes of the modules below `dlq_web.pages`.

A new page is tested without a word here, unless its address has a part that SAMPLES does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages
from typing import Any

import dlq_web.pages
from dlq_common.clock import SteadyClock
from dlq_web.pages.machines.maps import GpuMaps

# A value for each part of an address, which both a fake master and a real one of the tests know.
SAMPLES = {"job": "1", "node": "n1"}
# They answer people with no page of their own.
NO_PAGES = ("/search", "/favicon.ico", "/gpus/map.json")


def page_paths(**samples: str) -> list[str]:
    """The address of every page, in the order of their names; `samples` take the place of ours."""
    values = SAMPLES | samples
    return sorted({_filled(path, values) for path in templates()} - {*NO_PAGES})


def templates() -> Iterator[str]:
    """The address of every route that answers GET, with its parts in braces."""
    clock = SteadyClock()
    parts = {"clock": clock, "_clock": clock, "maps": GpuMaps(clock)}
    for found in walk_packages(dlq_web.pages.__path__, "dlq_web.pages."):
        routes = getattr(import_module(found.name), "routes", None)
        wanted = signature(routes).parameters if routes is not None else ()
        for route in routes(*(parts[name] for name in wanted)) if routes is not None else ():
            if "GET" in (route.methods or ()):
                yield route.path


def _filled(path: str, values: dict[str, Any]) -> str:
    parts = re.findall(r"{(\w+)(?::\w+)?}", path)
    unknown = [part for part in parts if part not in values]
    assert not unknown, f"{path}: say a value for {unknown} in SAMPLES of support/web_pages.py"
    return re.sub(r"{(\w+)(?::\w+)?}", lambda found: values[found[1]], path)
