"""The port to a cluster for jobs with data: offers include the transfer, and data is staged first.

Staging is a job of its own, with progress, output, a cause of its end, and a cancel. The real job
depends on it, so it holds no GPU before its data is there. Both have keys of the hand-over. So a
repeat after a kill finds the same staging job, and makes the same request again. If the real job is
refused afterwards, the staging job has only filled a cache. So only the real job is proven absent,
as without data.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlq.v1 import job_pb2
from dlq_broker import stage_program
from dlq_broker.data_file import DataList, DataNeed, need_at
from dlq_broker.doors import Accepted, Declined, Tried
from dlq_broker.offers import ClusterOffer, NoOffer, OfferAnswer
from dlq_broker.over_wire import WireCluster
from dlq_common.errors import InvalidRequest

STAGING_KEY = "-d"  # behind the key of the real job: a key has 64 letters at most
_PROGRAM = "The program of a staging job"  # so its script begins, in all releases
# Before the program of the real job: it uses the entries from now on, and waits for them no more.
_HOLD = """\
number=9
gone() {
    echo "the staged data sha256:$1 is not in $cache any more" >&2
    exit 75
}
for digest in $DLQ_STAGED; do
    lock=$cache/locks/$digest
    [ -e "$lock" ] || gone "$digest"
    eval "exec $number<\\"\\$lock\\"" && flock -s $number || exit 75
    [ -d "$cache/entries/$digest/data" ] || gone "$digest"
    touch "$lock"
    # It may be preempted, and start again: the entry waits for it a day from now.
    echo $(($(date +%s) + 86400)) > "$cache/pins/$digest.$pin"
    number=$((number - 1))
done
"""
_ANY = "missing data and a dependency on any of several jobs do not go together"

Submit = Callable[[bytes, str], Tried]


class StagingCluster(WireCluster):
    """A listed cluster with the data list of its user."""

    def __init__(self, *line: Any, data: DataList, only_there: bool = False) -> None:
        """`line`: as for WireCluster. `only_there`: no offer without the data."""
        super().__init__(*line)
        self._data, self._only_there = data, only_there

    def offer(self, spec: bytes, within_s: float) -> OfferAnswer:
        ask = partial(super().offer, spec, within_s)
        return offer_with_data(self.name, self._data, spec, ask, only_there=self._only_there)

    def submit(self, spec: bytes, key: str) -> Tried:
        return submit_with_data(self.name, self._data, spec, key, super().submit)


def offer_with_data(
    cluster: str,
    data: DataList,
    spec: bytes,
    ask: Callable[[], OfferAnswer],
    *,
    only_there: bool = False,
) -> OfferAnswer:
    """The cluster's offer with the transfer of missing data. A cluster that cannot get it is not
    asked.
    """
    try:
        need = _need(cluster, data, spec)
    except InvalidRequest as error:
        return NoOffer(cluster, error.what, error.reason)
    if need is None or not need.missing:
        return ask()
    if _is_of_any(spec):
        return NoOffer(cluster, _ANY, "INVALID_REQUEST")
    names = ", ".join(one.name for one in need.missing)
    if only_there:
        return NoOffer(cluster, f"its data is not there: {names}", "UNSATISFIABLE")
    if why := unstageable(need, cluster):
        return NoOffer(cluster, why, "UNSATISFIABLE")
    answer = ask()
    if not isinstance(answer, ClusterOffer):
        return answer
    return answer._replace(data_s=need.seconds, data_cost=need.cost, data_bytes=need.bytes)


def submit_with_data(cluster: str, data: DataList, spec: bytes, key: str, submit: Submit) -> Tried:
    """Submit the staging job, if data is missing, then the real one, which depends on it."""
    try:
        need = _need(cluster, data, spec)
    except InvalidRequest as error:
        return Declined(error.what, error.reason)
    if need is None:
        return submit(spec, key)
    if not need.missing:
        return submit(_placed(spec, need), key)
    if _is_of_any(spec):
        return Declined(_ANY, "INVALID_REQUEST")
    if why := unstageable(need, cluster):
        return Declined(why, "UNSATISFIABLE")
    staging = submit(staging_spec(spec, need, key), key + STAGING_KEY)
    if not isinstance(staging, Accepted):
        return staging
    return submit(_placed(spec, need, after=staging.job, pin=key), key)


def staging_spec(spec: bytes, need: DataNeed, pin: str) -> bytes:
    """The job that stages, on one core, with the account and the queue of the real one."""
    real, place = job_pb2.JobSpec.FromString(spec), need.place
    assert place is not None
    names = "+".join(one.name for one in need.missing)
    stage = job_pb2.JobSpec(
        name=f"stage {names}"[:256],
        script=Path(stage_program.__file__).read_text("utf-8"),
        queue=real.queue,
        team=real.team,
        working_directory=real.working_directory,
    )
    stage.command.extend([place.cache, f"{place.cache_bytes:.0f}", pin])
    for one in need.missing:
        stage.command.extend([one.name, one.digest, str(one.bytes), one.source])
    stage.resources.core_count = 1
    return stage.SerializeToString(deterministic=True)


def is_staging(spec: job_pb2.JobSpec) -> bool:
    """Whether this is a staging job, which is useless at any other cluster."""
    return _PROGRAM in spec.script[:200]


def unstageable(need: DataNeed, cluster: str) -> str:
    """Why missing data cannot be staged there; "": it can."""
    if need.place is None:
        return f"its data is not there, and [transfer.{cluster}] names no cache"
    if need.bytes > need.place.cache_bytes:
        return "its data is more than the cache there may hold"
    for one in need.missing:
        if not one.source:
            return f"data {one.name} has no source"
    return ""


# --- helpers, in order of use ---------------------------------------------------------------------


def _need(cluster: str, data: DataList, spec: bytes) -> DataNeed | None:
    return need_at(data, dict(job_pb2.JobSpec.FromString(spec).environment), cluster)


def _is_of_any(spec: bytes) -> bool:
    """Whether it needs only one of several other jobs: the staging job would count as that one."""
    dependency = job_pb2.JobSpec.FromString(spec).dependency
    return dependency.any and len(dependency.terms) > 1


def _placed(spec: bytes, need: DataNeed, after: str = "", pin: str = "") -> bytes:
    """The spec for this cluster: directories for digests, and a dependency on its staging job."""
    real = job_pb2.JobSpec.FromString(spec)
    for variable, directory in need.directories.items():
        real.environment[variable] = directory
    if after and need.place is not None:
        _depend(real, after)
        _hold(real, need.place.cache, [one.digest for one in need.missing], pin)
    return real.SerializeToString(deterministic=True)


def _depend(real: job_pb2.JobSpec, after: str) -> None:
    """Depend on the success of the staging job. If that fails, the real one is cancelled."""
    term = real.dependency.terms.add(job_id=after)
    term.relation = job_pb2.DEPENDENCY_RELATION_AFTEROK
    real.dependency.any = False  # any of one job is the same as all
    real.dependency.cancel_if_never = True


def _hold(real: job_pb2.JobSpec, cache: str, digests: Sequence[str], pin: str) -> None:
    """Start its program by a shell that takes the locks and becomes the program."""
    head = (
        f"cache={shlex.quote(cache)} pin={shlex.quote(pin)}\n"
        f"DLQ_STAGED={shlex.quote(' '.join(digests))}\n{_HOLD}"
    )
    if not real.script:
        program = [*real.command]
        del real.command[:]
        real.command.extend(["/bin/sh", "-c", f'{head}exec "$@"\n', "dlq-hold", *program])
        return
    first = real.script.partition("\n")[0]
    interpreter = first[2:].strip() if first.startswith("#!") else "/bin/sh"
    text = base64.b64encode(real.script.encode("utf-8", "surrogateescape")).decode()
    real.script = (
        f"#!/bin/sh\n{head}"
        'script=$(mktemp "${TMPDIR:-/tmp}/dlq-script.XXXXXX") || exit 75\n'
        f"base64 -d > \"$script\" <<'END'\n{text}\nEND\n"
        f'exec {interpreter} "$script" "$@"\n'
    )
