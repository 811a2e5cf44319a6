"""`dlq web` that starts while its master is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq.v1 import queue_service_pb2
from dlq_cli.app import App
from dlq_client.line.identity import Identity
from dlq_common.errors import DlqError, PermissionDenied, TryAgain, Unavailable
from dlq_web.command import identity_of
from dlq_web.serving import cluster_told

ANSWER = queue_service_pb2.GetClusterResponse(cluster_name="lab", caller="ann")


class ScriptedMaster:
    """A line whose calls end so, in turn."""

    def __init__(self, *ends: DlqError | queue_service_pb2.GetClusterResponse) -> None:
        self._ends = list(ends)

    async def call(self, *_: Any, **__: Any) -> Any:
        end = self._ends.pop(0)
        if isinstance(end, DlqError):
            raise end
        return end

    def stream(self, *_: Any) -> Any:
        raise AssertionError("it streams nothing")


async def told(*ends: DlqError | queue_service_pb2.GetClusterResponse) -> tuple[Any, list[str]]:
    said: list[str] = []

    async def pause(_: float) -> None:
        said.append("pause")

    return await cluster_told(ScriptedMaster(*ends), said.append, pause), said


async def test_it_waits_for_the_master_and_says_so_once() -> None:
    away = Unavailable("the master at head:7320 cannot be reached")
    answer, said = await told(away, TryAgain("it begins"), ANSWER)
    assert answer.caller == "ann"
    assert said == [f"{away.what}; the page comes when the master answers", "pause", "pause"]


async def test_a_master_that_refuses_is_not_waited_for() -> None:
    with pytest.raises(PermissionDenied):
        await told(PermissionDenied("you are nobody here"), ANSWER)


def test_without_an_identity_it_waits_for_the_login_broker_and_says_so_once() -> None:
    identity = cast(Identity, object())
    away, said = Unavailable("no login broker answers at /run/dlq/login.sock"), list[str]()
    ends: list[Any] = [away, away, SimpleNamespace(identity=identity)]

    def connection() -> Any:
        end = ends.pop(0)
        if isinstance(end, DlqError):
            raise end
        return end

    app = cast(App, SimpleNamespace(connection=connection, say=said.append))
    assert identity_of(app, lambda _: said.append("pause")) is identity
    assert said == [f"{away.what}; the page comes when the master answers", "pause", "pause"]
