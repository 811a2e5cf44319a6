"""How nodes are chosen: labels that they must have, and nodes by name, as people write them."""

from __future__ import annotations

import re

from dlq_common.text.hostlist import expand_hostlist
from dlq_common.text.names import check_node_name, check_word

_VALUE = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)


def read_constraint(raw: object) -> tuple[str, ...]:
    """`rack=r1`, `rack=r1,disk=fast` (or with `&`), a list of those, or a table; `K=V` texts,
    sorted.
    """
    if isinstance(raw, dict):
        words = [f"{name}={value}" for name, value in raw.items()]
    elif isinstance(raw, str):
        words = [word for word in re.split(r"[,&]", raw.strip()) if word]
    elif isinstance(raw, list | tuple):
        words = [str(word) for word in raw]
    else:
        raise ValueError("write K=V, a list of that, or a table")
    found = dict(read_node_label(word) for word in words)
    if not found or len(found) < len(words):
        raise ValueError("nothing is asked for" if not found else "one label is asked for twice")
    return tuple(f"{name}={found[name]}" for name in sorted(found))


def read_node_label(word: str) -> tuple[str, str]:
    """The name and the value of `K=V`."""
    if "|" in word:
        raise ValueError(
            "nodes with one label or another cannot be asked for: write K=V,K=V for both; of "
            "several GPU types any one will do with --gpu-type a,b"
        )
    name, equals, value = word.strip().partition("=")
    if not equals:
        raise ValueError(
            f"{word[:64]!r} is not K=V (Slurm's features have no value; labels here do)"
        )
    check_word(name, "label")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"label {name}: use up to 63 letters, digits, '.', '_' and '-'")
    return name, value


def read_nodes(raw: object) -> tuple[str, ...]:
    """`gpu01`, `gpu[01-04],gpu07`, or a list of those; the names, sorted."""
    words = [raw] if isinstance(raw, str) else raw
    if not isinstance(words, list | tuple) or not words:
        raise ValueError("write node names, such as gpu[01-04]")
    return tuple(
        sorted({check_node_name(name) for word in words for name in expand_hostlist(str(word))})
    )
