"""grpc without its own lines on stderr, which would be between ours, and without asyncio.

grpc imports asyncio, which no command uses; that is a third of its import time.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_VARIABLE = "GRPC_VERBOSITY"
_UNUSED = ("asyncio", "grpc.aio")


@contextmanager
def quiet_grpc() -> Iterator[None]:
    """Around an import that may load grpc, which reads its verbosity then.

    The variable is removed afterwards: `submit --export ALL` must not pass it to a job. A value
    that the user has set stays.
    """
    with _without_asyncio():
        if _VARIABLE in os.environ:
            yield
            return
        os.environ[_VARIABLE] = "NONE"
        try:
            yield
        finally:
            del os.environ[_VARIABLE]


class _AtFirstUse(ModuleType):
    """A stand-in for a module: it imports the module when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _let_go_of(self)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _without_asyncio() -> Iterator[None]:
    """Give grpc stand-ins for two modules. A later import of asyncio finds asyncio."""
    if "grpc" in sys.modules or "asyncio" in sys.modules:
        yield
        return
    given = [_AtFirstUse(name) for name in _UNUSED]
    sys.modules.update({module.__name__: module for module in given})
    try:
        yield
    finally:
        for module in given:
            _let_go_of(module)


def _let_go_of(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
