"""Coroutines with the names of `dlq` (docs/using/python.md). Nothing is imported before its use."""

from importlib import import_module

_NAMES = ("AsyncArray", "AsyncCluster", "AsyncGroup", "AsyncJob", "connect")
__all__ = list(_NAMES)


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("dlq_api.aio"), name)
