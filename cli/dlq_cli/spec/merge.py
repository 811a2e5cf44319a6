"""Layers into one: the command line over #DLQ lines over the spec file over the defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlq_cli.spec.values.given import FromShell, Given, Layer, ReadLayer, wrong
from dlq_common.text.names import check_env_name

# Keys that say the same in different words: the higher layer's word hides the lower one's.
RIVALS: tuple[tuple[str, ...], ...] = (
    ("command", "run"),
    ("resources.gpus", "resources.gpus_total", "resources.cores"),
    ("elastic.gpus", "elastic.sizes"),
)


def merge(layers: Iterable[ReadLayer], shell: Mapping[str, str]) -> Layer:
    """One layer from several, lowest first. `shell` is the submitter's environment."""
    merged = stacked(layers)
    exported = _exported(merged.pop("export", None), shell)
    return {key: _resolved(key, given, shell) for key, given in {**exported, **merged}.items()}


def stacked(layers: Iterable[ReadLayer]) -> Layer:
    """One layer from several, lowest first; values from a shell are still open."""
    merged: Layer = {}
    for layer in layers:
        for rivals in RIVALS:
            if any(key in layer for key in rivals):
                for key in rivals:
                    merged.pop(key, None)
        merged.update(layer)
    return merged


def _exported(given: Given | None, shell: Mapping[str, str]) -> Layer:
    """Variables that --export takes along; single --env flags override them."""
    layer: Layer = {}
    if given is None or not isinstance(given.value, tuple):
        return layer
    sane = _sane(shell)
    for word in given.value:
        name, equals, value = word.partition("=")
        if word.upper() == "ALL":
            layer |= {f"env.{name}": Given(shell[name], given.origin) for name in sane}
        elif equals:
            layer[f"env.{name}"] = Given(value, given.origin)
        elif name in sane:  # as in Slurm: programs list all that they may have set
            layer[f"env.{name}"] = Given(shell[name], f"{given.origin} (shell)")
    return layer


def _sane(shell: Mapping[str, str]) -> list[str]:
    """Variables that a job may have: text only, no shell functions, no variables of dlq's own."""
    names = []
    for name, value in shell.items():
        try:
            check_env_name(name)
            value.encode("utf-8")
        except ValueError:
            continue
        names.append(name)
    return names


def _resolved(key: str, given: Given, shell: Mapping[str, str]) -> Given:
    if given.value is not FromShell.VALUE:
        return given
    name = key.removeprefix("env.")
    if name not in shell:
        raise wrong(given.origin, f"your shell has no variable {name} to take")
    return Given(shell[name], f"{given.origin} (shell)")
