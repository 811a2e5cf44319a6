"""The words of a submission, read as `dlq submit` and job files read them, and the job they mean.

A keyword is the long name of a flag of `dlq submit`, with `_` for `-`. Keys of job files outside of
the sections are keywords too. Where both have a name, they mean the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias, TypedDict

from dlq_cli.jobs.source import read_source
from dlq_cli.spec.caller import caller_layer
from dlq_cli.spec.check import doubts
from dlq_cli.spec.fields import FLAGS, LATER_KEYS, READERS, SECTIONS, put, put_flag
from dlq_cli.spec.merge import merge
from dlq_cli.spec.script import read_script
from dlq_cli.spec.toml_yaml import SUFFIXES, read_spec_file
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Given, Layer, Notes, unknown_key, wrong
from dlq_common.job_fields.field import Flag

Text: TypeAlias = str | os.PathLike[str]
Count: TypeAlias = int | str
Span: TypeAlias = timedelta | str | int
"""A duration. A bare number counts minutes, as it does for `dlq submit`."""
Instant: TypeAlias = datetime | timedelta | str
Many: TypeAlias = str | Sequence[str]
Pairs: TypeAlias = Mapping[str, str] | Sequence[str] | str
Source: TypeAlias = Text | Sequence[Text] | Mapping[str, object]
"""A script or a job file by its name, a command as a list, or the content of a job file."""


class SubmitWords(TypedDict, total=False):
    """The keywords of `submit`: the flags of `dlq submit`, and keys of job files."""

    job_name: str
    name: str
    queue: str
    partition: str
    team: str
    label: Pairs
    chdir: Text
    workdir: Text
    umask: Count
    env: Pairs
    export: Many
    secret: Many
    gpus: Count
    gpus_per_node: Count
    cores: Count
    nodes: Count
    gpu_type: Many
    gpu_mem: Count
    halve_batch: bool
    mixed_gpus: bool
    cpus: Count
    mem: Count
    mem_per_core: Count
    constraint: Pairs
    nodelist: Many
    exclude: Many
    elastic: str
    elastic_sizes: Count | Sequence[int]
    elastic_mode: str
    time: Span
    time_limit_scope: str
    work: Span
    estimate: Span
    steps: Count
    begin: Instant
    dependency: str
    kill_on_invalid_dep: bool | str
    array: str
    nice: Count
    no_requeue: bool
    hold: bool
    deadline: Instant
    soft_deadline: str
    on_miss: str
    due: Instant
    weight: float | str
    output: Text
    error: Text
    open_mode: str
    signal: str
    grace: Span
    requeue_exit: Count | Sequence[int]
    max_restarts: Count | Sequence[Count] | Mapping[str, int]
    checkpoint_dir: Text
    resume_from: Text
    checkpoint_marker: str
    checkpoint_settle: Span
    checkpoint_preset: str
    save_signal: str
    signal_to: str
    on_exit0_while_stopping: str
    completion_exit: Count | Sequence[int]
    launch: str
    workers: Count
    ps: Count
    compat: str
    ntasks_per_node: Count
    ntasks: Count
    profile: bool
    image: str
    mount: Many
    shm_size: Count
    network: str
    image_secret: str
    command: Many
    run: str
    labels: Pairs
    secrets: Many
    time_limit: Span
    depends_on: Many
    cancel_if_never: bool
    disconnect_hold: Span
    completion_exit_codes: Count | Sequence[int]
    tasks_per_node: Count
    tasks: Count
    cpus_per_task: Count
    gpus_per_task: Count
    tasks_implied: bool
    runtime: str
    mounts: Many


def _by_name() -> Iterator[tuple[str, Flag]]:
    for flag in FLAGS:
        for name in flag.names:
            if name.startswith("--"):
                yield name[2:].replace("-", "_"), flag


FLAG_WORDS: Mapping[str, Flag] = MappingProxyType(dict(_by_name()))
KEY_WORDS = frozenset(key for key in READERS if "." not in key) - FLAG_WORDS.keys()
WORDS = frozenset({*FLAG_WORDS, *KEY_WORDS})


def spec_of(
    source: Source, arguments: Sequence[Text], words: Mapping[str, object]
) -> tuple[Spec, list[str]]:
    """The job that a call of `submit` means, and notes for its user. InvalidRequest names the
    keyword, or the line of the file, in its `field`.
    """
    over = layer_of(words)
    layer, notes = _source_layer(source, arguments, over)
    merged = merge([caller_layer(), layer, over], os.environ)
    words_after = () if isinstance(source, Mapping) or _is_command(source) else arguments
    spec = finish(
        merged, directory=os.getcwd(), arguments=tuple(os.fspath(each) for each in words_after)
    )
    return spec, [*notes, *doubts(spec)]


def layer_of(words: Mapping[str, object]) -> Layer:
    """The layer of some keywords. A keyword that is None counts as not said."""
    layer: Layer = {}
    for word, value in words.items():
        if value is not None:
            _put_word(layer, word, plain(value))
    return layer


def _put_word(layer: Layer, word: str, value: object) -> None:
    flag = FLAG_WORDS.get(word)
    if flag is None and word not in KEY_WORDS:
        raise unknown_key(word, word, WORDS, LATER_KEYS)
    if flag is None:
        put(layer, word, value, word)
    elif not flag.repeat or isinstance(value, Mapping):
        put(layer, flag.key, value, word, word)
    else:
        for each in value if isinstance(value, list) else [value]:
            put_flag(layer, flag, str(each), word)


def plain(value: object) -> object:
    """A value as a job file could hold it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, timedelta):
        return f"{max(0, round(value.total_seconds()))}s"
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [plain(each) for each in value]
    return value


def _is_command(source: Source) -> bool:
    return not isinstance(source, (str, os.PathLike, Mapping))


def _source_layer(
    source: Source, arguments: Sequence[Text], over: Layer
) -> tuple[Layer, Sequence[str]]:
    """The layer below the keywords, and its notes."""
    if callable(source):
        raise wrong("source", "a function", hint="cluster.executor(...) submits functions")
    if isinstance(source, Mapping):
        _refuse_arguments(arguments)
        return _mapping_layer(source), ()
    if not isinstance(source, (str, os.PathLike)):
        command = tuple(os.fspath(each) for each in (*source, *arguments))
        if not command or not command[0].strip():
            raise wrong("source", "the command is empty")
        return {"command": Given(command, "source")}, ()
    path = os.fspath(source)
    if not path.lower().endswith(SUFFIXES):
        script = read_script(read_source(path), path, over=over)
        return script.layer, script.notes
    _refuse_arguments(arguments)
    return read_spec_file(read_source(path), path), Notes()


def _refuse_arguments(arguments: Sequence[Text]) -> None:
    if arguments:
        raise wrong("source", f"a job file takes no arguments, and {arguments[0]!r} follows it")


def _mapping_layer(tree: Mapping[str, object]) -> Layer:
    """The layer of a job file's content. Sections are mappings within it."""
    layer: Layer = {}
    for key, value in tree.items():
        if key in SECTIONS and isinstance(value, Mapping):
            for inner, each in value.items():
                put(layer, f"{key}.{inner}", plain(each), f"{key}.{inner}", f"{key}.{inner}")
        else:
            put(layer, key, plain(value), key, key)
    return layer
