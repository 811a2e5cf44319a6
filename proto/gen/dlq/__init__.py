"""dlq from Python: `dlq.connect().submit(...)`, and all that comes of it (docs/using/python.md).

A name is imported when it is first used. So a program that needs the messages of `dlq.v1` alone
pays for nothing else. The types of the names are in `__init__.pyi`, for editors and mypy.
"""

from importlib import import_module

_NAMES = {
    "dlq_api.cluster": "Cluster connect",
    "dlq_api.job": "Job JobArray JobGroup",
    "dlq_api.values": "Eta EtaRange JobPromise Why WhyReason",
    "dlq_api.ends": (
        "FunctionFailed FunctionLost JobCancelled JobFailed JobPoisoned JobTimedOut WaitTimeout"
    ),
    "dlq_api.executor": "Executor FunctionFuture",
    "dlq_api.functions": "RemoteTraceback",
    "dlq_api.output": "OutputMissing",
    "dlq_api.words": "SubmitWords",
    "dlq_common.errors": (
        "AlreadyExists ConfigError Conflict DlqError IllegalTransition InvalidRequest NotFound "
        "NotLeader PermissionDenied QuotaExceeded TryAgain Unauthenticated Unavailable "
        "Unsatisfiable WorkWouldBeLost"
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "aio":
        return import_module("dlq.aio")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "aio"})
