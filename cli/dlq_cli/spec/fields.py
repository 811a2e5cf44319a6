"""Reads the keys of spec files, and the flags of `dlq submit` and #DLQ lines, into one layer.

Each source (command line, script, file) has a layer, and `merge` puts them together. Keys, flags
and their readers are declared in `dlq_common.job_fields.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dlq_cli.spec.values.container import entries
from dlq_cli.spec.values.given import FromShell, Given, Layer, unknown_key, wrong
from dlq_common.job_fields.field import Flag
from dlq_common.job_fields.reading.program import read_assignment, read_label
from dlq_common.job_fields.reading.words import Gpus, RestartsAllowed
from dlq_common.job_fields.table import FIELDS
from dlq_common.job_fields.table.checkpoints import MAX_RESTARTS

Reader = Callable[[object], object]

READERS: Mapping[str, Reader] = {key: field.read for key, field in FIELDS.items()}

# Accepted synonyms of keys.
ALIASES: Mapping[str, str] = {
    "script": "run",
    "commands": "run",
    "time": "time_limit",
    "work": "estimate",
    "num_nodes": "nodes",
    "working_dir": "workdir",
    "envs": "env",
    "dependency": "depends_on",
    "resources.accelerators": "resources.gpus",
    "resources.gpu": "resources.gpus",
}

SECTIONS = ("resources", "elastic", "output", "preempt", "checkpoint", "retry", "roles")

# Keys of other versions: the error says so, instead of suggesting a similar key.
LATER_KEYS = frozenset(
    {
        "idle", "notify", "ports", "priority", "qos", "schedule", "setup",
        "time_min", "volumes", "resources.disk", "checkpoint.keep",
        "checkpoint.resume_arg", "preempt.allowed", "preempt.min_run", "retry.backoff", "retry.on",
    }
)  # fmt: skip


# Our keys, and words of Slurm, SkyPilot, dstack and our own flags for them: the error names ours.
_WORDS: Mapping[str, str] = {
    "`gpus` under resources (of each node) or `gpus_total` (of the whole job)": (
        "gpus gpu ngpus num_gpus gpus_total accelerators gres tres"
    ),
    "`gpus` under resources": "gpus_per_node resources.gpus_per_node resources.num_gpus",
    "`constraint` under resources": "constraint constraints",
    "`nodelist` under resources": "nodelist node_list",
    "`exclude` under resources": "exclude exclude_nodes",
    "`gpu_type` under resources": "gpu_type resources.gpu_name",
    "`cpus` under resources": "cpus cpu resources.cpu resources.cpus_per_task",
    "`memory` under resources": "memory mem resources.mem resources.memory_limit",
    "`nodes`": "resources.nodes resources.num_nodes nnodes node_count",
    "`queue`": "partition resources.queue",
    "`team`": "account project group",
    '`gpus` under elastic, such as "2:8"': "elastic min_max elastic.range",
    "`resize` under elastic": "elastic.mode elastic_mode",
    "`name`": "job_name title",
    "`run`": "wrap shell",
    "`command`": "cmd entrypoint args program",
    "`time_limit`": "walltime timeout max_duration timelimit limit resources.time",
    "`workdir`": "chdir cwd dir directory working_directory",
    "`env`": "environment env_vars variables",
    "`labels`": "tags comment",
    "`signal` under preempt": "signal resources.signal",
    "`grace` under preempt": "grace grace_time",
    "`tasks_per_node`, with `compat`": "ntasks_per_node ntasks",
    "`workers` under roles": "workers num_workers roles.worker",
    "`ps` under roles": "ps servers num_servers roles.server",
    "`preset` under checkpoint": "preset framework",
    "`dir` under checkpoint": "checkpoint_dir checkpoint.directory",
    "`max_restarts` under retry": "max_restarts max_retries retries requeue retry.max_retries",
    "`exit_codes` under retry": "requeue_exit",
    "`image`": "container container_image docker image_id",
    "`image_secret`, a secret's name": "registry_auth image_pull_secret",
    "`mounts`, a list of SRC:DST": "bind_mounts binds",
    "`shm_size` under resources": "shm_size shm",
    "`stdout` under output": "stdout log log_file logfile",
    "`stderr` under output": "stderr error",
}
SYNONYMS: Mapping[str, str] = {
    word: meant for meant, words in _WORDS.items() for word in words.split()
}


def put(layer: Layer, key: str, raw: object, origin: str, said: str = "") -> None:
    """Read one value into `layer`; InvalidRequest for a bad value; it names `origin` and the word
    `said` there for the key (default: the key).
    """
    said, key = said or key, ALIASES.get(key, key)
    reader = READERS.get(key)
    if reader is None and (meant := SYNONYMS.get(key.lower().replace("-", "_"))):
        raise wrong(origin, f"unknown key {key!r}: write {meant}")
    if reader is None:
        raise unknown_key(origin, key, (*READERS, *SECTIONS), LATER_KEYS)
    try:
        value = reader(raw)
    except ValueError as error:
        named = origin.startswith("--") or origin == said  # the origin names it
        told = str(error) if named else f"{said}: {error}"
        raise wrong(origin, told) from None
    _enter(layer, key, value, origin)


def _enter(layer: Layer, key: str, value: object, origin: str) -> None:
    match key, value:
        case (("env" | "labels"), dict()):
            for name, text in value.items():
                shown = FromShell.VALUE if text is None else text
                layer[f"{key}.{name}"] = Given(shown, origin)
        case (("mounts" | "secrets"), tuple()):
            for entry, item in entries(key, value).items():
                layer[entry] = Given(item, origin)
        case _, Gpus(number=number, gpu_type=gpu_type):
            layer[key] = Given(number, origin)
            if gpu_type:
                _enter_gpu_types(layer, (gpu_type,), origin)
        case "resources.gpu_type", tuple():
            _enter_gpu_types(layer, value, origin)
        case _:
            layer[key] = Given(value, origin)


def _enter_gpu_types(layer: Layer, gpu_types: tuple[str, ...], origin: str) -> None:
    before = layer.get("resources.gpu_type")
    if before and isinstance(before.value, tuple) and before.value != gpu_types:
        named, other = ",".join(gpu_types), ",".join(before.value)
        raise wrong(origin, f"GPU type {named} contradicts {other} ({before.origin})")
    layer["resources.gpu_type"] = Given(gpu_types, origin)


FLAGS: tuple[Flag, ...] = tuple(flag for field in FIELDS.values() for flag in field.flags())
BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}

# Slurm's and our own flags of later versions: they are refused, so that users know they had no
# effect.
LATER_FLAGS = frozenset(
    {
        "--account", "--contiguous",
        "--cpus-per-gpu", "--cpus-per-task", "--error", "--exclusive", "--keep-checkpoints",
        "--mail-type", "--mail-user", "--mem-per-gpu", "--no-preempt",
        "--notify",
        "--output", "--preemptible", "--priority", "--qos", "--requeue",
        "--snapshot", "--time-min", "--topology", "--webhook",
        "-A", "-c", "-e", "-n", "-o",
    }
)  # fmt: skip


def put_flag(layer: Layer, flag: Flag, raw: str | bool, origin: str) -> None:
    """Read one occurrence of a flag into `layer`; a repeatable one adds, others override."""
    if not flag.repeat or isinstance(raw, bool):
        put(layer, flag.key, raw, origin, flag.shown)
        return
    try:
        if flag.key in ("mounts", "secrets"):
            put(layer, flag.key, [raw], origin, flag.shown)
        elif flag.key == MAX_RESTARTS.key:
            _add_restarts(layer, flag, raw, origin)
        elif flag.key == "env":
            name, value = read_assignment(raw)
            put(layer, "env", [name if value is None else f"{name}={value}"], origin)
        else:
            label, text = read_label(raw)
            layer[f"{flag.key}.{label}"] = Given(text, origin)
    except ValueError as error:
        raise wrong(origin, str(error)) from None


def _add_restarts(layer: Layer, flag: Flag, raw: str, origin: str) -> None:
    before = layer.get(flag.key)
    put(layer, flag.key, raw, origin, flag.shown)
    now = layer[flag.key].value
    if before and isinstance(before.value, RestartsAllowed) and isinstance(now, RestartsAllowed):
        layer[flag.key] = Given(before.value.with_also(now), origin)


def layer_from(occurrences: Iterable[tuple[Flag, str | bool, str]]) -> Layer:
    """The layer of one source from its (flag, value, origin) in the order written."""
    layer: Layer = {}
    for flag, raw, origin in occurrences:
        put_flag(layer, flag, raw, origin)
    return layer
