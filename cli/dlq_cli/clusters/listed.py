"""The clusters of the user's list, their connections, and jobs by global names such as `a:17`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlq_cli.app import App
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import DlqError, InvalidRequest

if TYPE_CHECKING:
    from dlq_broker.clusters_file import ClusterList, ListedCluster
    from dlq_broker.data_file import DataList
    from dlq_broker.doors import ClusterDoor
    from dlq_broker.records import HandOverFiles

F = TypeVar("F", bound=Callable[..., Any])


class Clusters:
    """The list in the identity directory of `app`, and the files there for it."""

    def __init__(self, app: App) -> None:
        from dlq_broker.clusters_file import FILE

        self._app = app
        self.path: Path = app.home / FILE
        self._apps: dict[str, App] = {}
        self.only_there = False  # jobs go where their data is, and nowhere else
        self._now_s = app.clock.now_s()

    @cached_property
    def all(self) -> ClusterList:
        """All clusters by name, in the order of the file; ConfigError names a wrong place."""
        from dlq_broker.clusters_file import read_clusters

        return read_clusters(self.path)

    @cached_property
    def data(self) -> DataList:
        """Declared data, and the ways to it."""
        from dlq_broker.data_file import read_data

        return read_data(self.path)

    @cached_property
    def records(self) -> HandOverFiles:
        """The hand-overs of this user."""
        from dlq_broker.records import DIRECTORY, HandOverFiles

        return HandOverFiles(self._app.home / DIRECTORY)

    def app(self, name: str) -> App:
        """A run of `dlq` at this cluster."""
        if name not in self._apps:
            self._apps[name] = self._app.at(name, self.all[name].home)
        return self._apps[name]

    def named(self, words: str) -> tuple[ListedCluster, ...]:
        """The clusters of `any`, or of `a,b`. InvalidRequest: an unknown name."""
        from dlq_broker.clusters_file import chosen

        return chosen(self.all, words, self.path)

    def doors(self) -> Mapping[str, ClusterDoor]:
        """The ports of all clusters, by name."""
        return {name: self.door(name) for name in self.all}

    def door(self, name: str) -> ClusterDoor:
        """The port to this cluster. Its connection is made on demand."""
        with quiet_grpc():
            from dlq_broker.over_wire import WireCluster

        app, price = self.app(name), self.all[name].price
        line = name, _site(app), app.connection, self._now_s, price
        if not self.data.data:
            return WireCluster(*line)
        from dlq_broker.staging_door import StagingCluster

        return StagingCluster(*line, data=self.data, only_there=self.only_there)

    def close(self) -> None:
        for app in self._apps.values():
            app.close()


def _site(app: App) -> str:
    """A cluster and its user, by the identity stored for it."""
    from dlq_client.line.identity import load_identity

    with suppress(DlqError):
        identity = load_identity(app.home)
        if identity is not None:
            return f"{identity.user}@{identity.cluster} in {app.home}"
    return f"nobody in {app.home}"


def job_argument(*, several: bool = True, **more: Any) -> Callable[[F], F]:
    """The argument `job` of a command: jobs of this cluster, or of one in the list."""
    nargs = -1 if several else 1
    return click.argument("job", nargs=nargs, callback=_at_its_cluster, **more)


def _at_its_cluster(ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """The names without their cluster, at which the command runs.

    InvalidRequest: they are of several clusters.
    """
    words: Sequence[str] = value if isinstance(value, tuple) else (value,)
    if not any(":" in word for word in words if word):
        return value
    parts = [parted(ctx.obj, word) for word in words]
    names = {cluster for cluster, _ in parts}
    if names == {""}:
        return value
    if len(names) > 1:
        told = ", ".join(sorted(name or "this one" for name in names))
        raise InvalidRequest(f"these jobs are of several clusters: {told}", hint="one at a time")
    clusters = Clusters(ctx.obj)
    ctx.obj = clusters.app(names.pop())
    ctx.call_on_close(clusters.close)
    bare = tuple(word for _, word in parts)
    return bare if isinstance(value, tuple) else bare[0]


def parted(app: App, word: str) -> tuple[str, str]:
    """The cluster and the job. A name without a listed cluster stays as it is."""
    cluster, colon, job = word.partition(":")
    if colon and job and cluster in Clusters(app).all:
        return cluster, job
    return "", word
