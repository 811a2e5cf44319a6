"""The merged layer as one whole spec: consequences and contradictions of its keys."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dlq_cli.spec.values.container import check_container, entries_of
from dlq_cli.spec.values.cores import cores_of
from dlq_cli.spec.values.elastic import Elastic, base_of, check_asked, check_live, elastic_of
from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_cli.spec.values.presets import with_preset
from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.reading.containers import MountSpec
from dlq_common.job_fields.reading.deadlines import Deadlines, Due, LatenessSpec
from dlq_common.job_fields.reading.ordering import DependencyText
from dlq_common.job_fields.reading.words import AUTO, PER_GPU, SignalAhead
from dlq_common.job_fields.table import FIELDS
from dlq_common.text.arrays import ArrayText
from dlq_common.text.names import check_absolute_path, check_env, job_name_from
from dlq_common.text.units import HOUR

# The master's limit: most of a request is not meant for variables.
LARGEST_ENVIRONMENT_BYTES = 256 * 1024
LARGEST_COMMAND = 64 * 1024
LONGEST_GRACE_S = HOUR  # the master takes no longer one, and would name its own field

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A job spec with units in the names; None where the cluster decides."""

    values: Mapping[str, object]  # by key, of fields that have a place of their own in JobSpec
    command: tuple[str, ...]
    script: str | None
    gpu_count: int
    core_count: int  # of a job without GPUs; 0: it has GPUs
    node_count: int | None
    elastic: Elastic | None
    gpu_types: tuple[str, ...]  # any one of these, the one liked best first; empty: of all
    constraint: tuple[str, ...]  # `K=V`, sorted
    environment: Mapping[str, str]
    deadlines: Deadlines  # empty: none
    lateness: LatenessSpec | None
    signal: str | None
    warning_s: int | None
    array: ArrayText | None
    depends_on: DependencyText | None
    cancel_if_never: bool
    begin: str | None  # as written: `now` is the submission
    mounts: tuple[MountSpec, ...]
    secrets: tuple[str, ...]
    labels: Mapping[str, str]
    # The place of each value, by the key of its field; a missing key is a default.
    origins: Mapping[str, str] = field(default_factory=dict)

    def of(self, asked: JobField[T]) -> T | None:
        """The value of a field; None: it is not said."""
        return asked.of(self.values)


def finish(merged: ReadLayer, *, directory: str, arguments: tuple[str, ...] = ()) -> Spec:
    """The spec of a job submitted from `directory`; `arguments` are those of a script.

    InvalidRequest names the place of a missing or contradicting value.
    """
    merged = with_preset(merged)
    get = _Getter(merged)
    command, script = _program(get, arguments)
    cores = cores_of(merged)
    gpu_count, node_count = (0, cores.nodes) if cores else _width(get, base_of(merged))
    elastic = elastic_of(merged, gpu_count // node_count if node_count else None)
    check_asked(merged, elastic, gpu_count, deadlines=bool(_deadlines(get)))
    check_live(merged, elastic, (script,) if script else command, node_count)
    signal = get.of("preempt.signal", SignalAhead)
    check_container(merged)
    _check_together(get)
    environment, deadlines, lateness = _environment(merged), _deadlines(get), _lateness(get)
    paths = {key: _path(get, key, directory) for key in ("workdir", "checkpoint.dir")}
    # A directory of this machine means nothing in an image, unless it is named.
    paths["workdir"] = paths["workdir"] or ("" if "image" in merged else directory)
    _check_roles(get, gpu_count, node_count)
    name = get.of("name", str) or _default_name(command, merged)
    grace_s = _grace_s(get, signal)
    return Spec(
        values={**_plain(merged), **paths, "name": name, "preempt.grace": grace_s},
        command=command,
        script=script,
        gpu_count=gpu_count,
        core_count=cores.total if cores else 0,
        node_count=node_count,
        elastic=elastic,
        gpu_types=get.of("resources.gpu_type", tuple) or (),
        constraint=get.of("resources.constraint", tuple) or (),
        environment=environment,
        deadlines=deadlines,
        lateness=lateness,
        signal=signal.name if signal else None,
        warning_s=(signal.ahead_s or None) if signal else None,
        array=get.of("array", ArrayText),
        depends_on=get.of("depends_on", DependencyText),
        cancel_if_never=bool(get.of("cancel_if_never", bool)),
        begin=get.of("begin", str),
        mounts=entries_of(merged, "mounts", MountSpec),
        secrets=entries_of(merged, "secrets", str),
        labels=_texts(merged, "labels."),
        origins={key: given.origin for key, given in merged.items()},
    )


def _plain(merged: ReadLayer) -> dict[str, object]:
    """Values of the fields that travel as they are."""
    return {
        key: given.value
        for key, given in merged.items()
        if key in FIELDS and FIELDS[key].wire is not None
    }


def _check_together(get: _Getter) -> None:
    """Values that mean something only with another, or never with one."""
    _mixed_gpus(get)
    for key, others, why in _NEEDS:
        if get.of(key, object) and not any(get.of(other, object) for other in others):
            raise wrong(get.origin(key), why)
    _launch(get)


# A key, the keys of which it needs one, and the reason.
_NEEDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "resources.halve_batch",
        ("resources.gpu_memory",),
        "which GPUs are too small, only gpu_memory tells",
    ),
    ("on_miss", ("deadline", "soft_deadline"), "on_miss means something only with a deadline"),
    ("checkpoint.marker", ("checkpoint.dir",), "a marker needs the directory it is looked for in"),
    *(
        (
            key,
            ("compat",),
            "tasks are srun's: they need compat = slurm; torchrun starts one process for each GPU",
        )
        for key in ("tasks_per_node", "tasks", "tasks_implied", "cpus_per_task", "gpus_per_task")
    ),
)


class _Getter:
    """Typed reading of a layer after its readers."""

    def __init__(self, layer: ReadLayer) -> None:
        self._layer = layer

    def of(self, key: str, kind: type[T]) -> T | None:
        """The value of a key, None when it was not given or is None itself."""
        given = self._layer.get(key)
        return given.value if given is not None and isinstance(given.value, kind) else None

    def origin(self, key: str) -> str:
        given = self._layer.get(key)
        return given.origin if given else "default"


def _deadlines(get: _Getter) -> Deadlines:
    strict, soft = get.of("deadline", tuple), get.of("soft_deadline", tuple)
    if strict and soft:
        raise wrong(
            get.origin("soft_deadline"),
            f"both `deadline` ({get.origin('deadline')}) and `soft_deadline` are given",
        )
    return strict or soft or ()


def _mixed_gpus(get: _Getter) -> None:
    mixed = bool(get.of("resources.mixed_gpus", bool))
    for name in ("resources.gpu_type", "nodes", "elastic.gpus", "elastic.sizes", "roles.workers"):
        if mixed and get.origin(name) != "default":
            raise wrong(
                get.origin("resources.mixed_gpus"),
                f"a job on several GPU types at once gets free GPUs only and excludes {name}",
            )


def _lateness(get: _Getter) -> LatenessSpec | None:
    due, weight = get.of("due", Due), get.of("weight", float)
    if due is None and weight is None:
        return None
    if weight is None:
        raise wrong(get.origin("due"), "`due` has no cost of lateness: `weight`")
    if due is None:
        raise wrong(get.origin("weight"), "`weight` says not when it is late: `due`")
    return LatenessSpec(due, weight)


def _program(get: _Getter, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    command, script = get.of("command", tuple), get.of("run", str)
    if command and script:
        raise wrong(
            get.origin("command"), f"both `command` and `run` ({get.origin('run')}) are given"
        )
    for word in (*(command or ()), *arguments):
        _encodable(word, "the command", get.origin("command"))
    if sum(map(len, (*(command or ()), *arguments))) > LARGEST_COMMAND:
        raise wrong(
            get.origin("command"), f"the command is longer than {LARGEST_COMMAND} characters"
        )
    if script:
        return arguments, script
    if not command:
        raise wrong(
            "dlq submit",
            "there is nothing to run",
            hint="dlq submit SCRIPT, dlq submit job.toml with a `command`, or dlq submit -- "
            "COMMAND",
        )
    return (*command, *arguments), None


def _width(get: _Getter, base: int | None) -> tuple[int, int | None]:
    """GPUs in all, and nodes if the gang's size matters; an elastic job asks for its `base` unless
    it says.
    """
    total, each = get.of("resources.gpus_total", int), get.of("resources.gpus", int)
    nodes = get.of("nodes", int)
    if total is None and (each is None or nodes is None):
        total = base
    if each is not None:
        nodes = nodes or (total // each if total and not total % each else 1)
        if total is not None and total != each * nodes:
            raise wrong(
                get.origin("resources.gpus_total"),
                f"{total} GPUs in all are not {nodes} nodes with {each} each",
            )
        return each * nodes, nodes
    total = total or get.of("roles.workers", int) or nodes or (0 if _chosen(get) else 1)
    if nodes and total % nodes:
        origin = "nodes" if get.of("resources.gpus_total", int) is None else "resources.gpus_total"
        raise wrong(get.origin(origin), f"{total} GPUs cannot be divided evenly over {nodes} nodes")
    return total, nodes


def _chosen(get: _Getter) -> bool:
    """Whether the cost of lateness chooses its number of GPUs."""
    return get.of("due", Due) is not None and not _deadlines(get)


def _grace_s(get: _Getter, signal: SignalAhead | None) -> int | None:
    """The longer of the grace and of the time that `--signal X@S` wants before the end."""
    grace = get.of("preempt.grace", int)
    ahead_s = signal.ahead_s if signal else 0
    if ahead_s and get.of("preempt.grace", str) == AUTO:
        raise wrong(
            get.origin("preempt.grace"),
            f"auto contradicts the {ahead_s} seconds of {get.origin('preempt.signal')}",
        )
    for key, seconds in (("preempt.grace", grace or 0), ("preempt.signal", ahead_s)):
        if seconds > LONGEST_GRACE_S:
            raise wrong(
                get.origin(key), f"{seconds} seconds before the kill: at most {LONGEST_GRACE_S}"
            )
    return max(grace or 0, ahead_s) or None


def _launch(get: _Getter) -> None:
    launch, compat = get.of("launch", str), get.of("compat", str)
    if launch == PER_GPU and compat:
        raise wrong(
            get.origin("launch"),
            f"per-gpu is what compat ({get.origin('compat')}) does already: use one of them",
        )


def _check_roles(get: _Getter, gpus: int, nodes: int | None) -> None:
    workers, servers = get.of("roles.workers", int), get.of("roles.ps", int)
    if workers is None:
        if servers is not None:
            raise wrong(get.origin("roles.ps"), "parameter servers need workers: say how many")
        return
    origin = get.origin("roles.workers")
    for key in ("compat", "launch"):
        word = get.of(key, str)
        if word and word != "per-node":
            raise wrong(get.origin(key), f"{word} does not go with workers ({origin})")
    if gpus % workers:
        raise wrong(origin, f"{gpus} GPUs cannot be shared evenly by {workers} workers")
    if nodes is None and gpus != workers:
        raise wrong(origin, "workers with several GPUs each need a number of nodes")
    if nodes is not None and workers % nodes:
        raise wrong(origin, f"{workers} workers cannot be split evenly over {nodes} nodes")


def _path(get: _Getter, key: str, directory: str) -> str | None:
    """A path below `directory` unless it is absolute; `..` is refused, not resolved."""
    path = get.of(key, str)
    if path is None:
        return None
    _encodable(path, key, get.origin(key))
    return _said(get.origin(key), lambda: check_absolute_path(posixpath.join(directory, path), key))


def _environment(merged: ReadLayer) -> dict[str, str]:
    environment = _texts(merged, "env.")
    origin = next((given.origin for key, given in merged.items() if key.startswith("env.")), "env")
    for key, value in environment.items():
        _encodable(value, f"the value of {key}", merged[f"env.{key}"].origin)
    _said(origin, lambda: check_env(environment))
    size = sum(len(name) + len(value.encode()) + 2 for name, value in environment.items())
    if size > LARGEST_ENVIRONMENT_BYTES:
        raise wrong(
            origin,
            f"the environment is too large: {size} bytes, {LARGEST_ENVIRONMENT_BYTES} at most",
            hint="name the variables that the job needs with --env",
        )
    return environment


def _texts(merged: ReadLayer, prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): str(given.value)
        for key, given in merged.items()
        if key.startswith(prefix)
    }


def _default_name(command: tuple[str, ...], merged: ReadLayer) -> str:
    """The script's or the program's own name, as far as it may be a job's."""
    given = merged.get("run")
    source = given.origin.partition(":")[0] if given else command[0]
    return job_name_from(posixpath.basename(source.rstrip("/")))


def _said(origin: str, check: Callable[[], object]) -> str:
    try:
        return str(check())
    except ValueError as error:
        raise wrong(origin, str(error)) from None


def _encodable(text: str, what: str, origin: str) -> None:
    """Command lines may hold any bytes; the wire carries UTF-8 without NUL."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise wrong(origin, f"{what} is not UTF-8") from None
    if "\0" in text:
        raise wrong(origin, f"{what} holds a NUL byte")
