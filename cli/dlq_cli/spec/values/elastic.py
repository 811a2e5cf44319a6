"""Jobs that run on several numbers of GPUs: `--elastic 2:8`, and its relation to the rest of a
spec.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_common.job_fields.reading.words import PER_GPU
from dlq_common.live_resize import LIVE, flag_that_would_win, names_torchrun
from dlq_common.text.sizes import (
    SizeRange,
    checked,
    expanded,
    format_sizes,
)


class Elastic(NamedTuple):
    """Sizes that will do, rising, and how the job gets from one to another (empty: as the cluster
    does).
    """

    sizes: tuple[int, ...]
    resize: str = ""


def elastic_of(layer: ReadLayer, each: int | None) -> Elastic | None:
    """The sizes that the layer names; `each`: GPUs of every node, if the job names a number of
    them.
    """
    resize = layer.get("elastic.resize")
    said, listed = layer.get("elastic.gpus"), layer.get("elastic.sizes")
    if said is not None and listed is not None:
        raise wrong(
            listed.origin, f"its sizes are a list or a range ({said.origin}): say one of them"
        )
    said = said or listed
    if said is None:
        if resize is not None:
            raise wrong(resize.origin, "how a job is resized means something only with its sizes")
        return None
    try:
        sizes = _sizes(said.value, each)
    except ValueError as error:
        raise wrong(said.origin, str(error)) from None
    if "roles.workers" in layer:
        raise wrong(
            said.origin, "workers and servers have a fixed number: such a job is not elastic"
        )
    return Elastic(sizes, str(resize.value) if resize is not None else "")


def base_of(layer: ReadLayer) -> int | None:
    """The fewest GPUs that it runs on; None: it is not elastic."""
    said = layer.get("elastic.gpus") or layer.get("elastic.sizes")
    if said is None:
        return None
    return said.value.least if isinstance(said.value, SizeRange) else _first(said.value)


def check_asked(layer: ReadLayer, elastic: Elastic | None, gpus: int, *, deadlines: bool) -> None:
    """Whether its requested number is one of its sizes; with deadlines, its base."""
    if elastic is None:
        return
    said = layer.get("elastic.gpus") or layer.get("elastic.sizes")
    asked = layer.get("resources.gpus_total") or layer.get("resources.gpus") or said
    assert asked is not None
    told = format_sizes(elastic.sizes)
    if gpus not in elastic.sizes:
        raise wrong(asked.origin, f"{gpus} GPUs are none of its sizes ({told})")
    if deadlines and gpus != elastic.sizes[0]:
        raise wrong(
            asked.origin,
            f"a deadline is promised for its base of {elastic.sizes[0]} GPUs, not for {gpus}",
            hint="leave the number of GPUs out; --work is then for its base",
        )


def elastic_text(elastic: Elastic | None) -> str:
    """`2:8`, for people."""
    if elastic is None:
        return ""
    return format_sizes(elastic.sizes) + (f", {elastic.resize}" if elastic.resize else "")


def told_to(signal_to: str, resize: str) -> str:
    """The receiver of the signal to save, for people; empty: the main process."""
    return "torchrun, which ends its workers" if resize == LIVE else signal_to


# --- helpers
#   ----------------------------------------------------------------------------------------


def _sizes(value: object, each: int | None) -> tuple[int, ...]:
    if isinstance(value, SizeRange):
        return expanded(value, each)
    assert isinstance(value, tuple)
    sizes = checked(value)
    if each is not None and any(size % each for size in sizes):
        raise ValueError(f"with {each} GPUs on every node its sizes are multiples of {each}")
    return sizes


def _first(value: object) -> int:
    assert isinstance(value, tuple)
    return int(value[0])


def check_live(
    layer: ReadLayer, elastic: Elastic | None, words: tuple[str, ...], node_count: int | None
) -> None:
    """InvalidRequest where a job says that it is resized live and could not be. `words`: its
    command, or its script.
    """
    if elastic is None or elastic.resize != LIVE:
        return
    origin = layer["elastic.resize"].origin
    if node_count is None:
        raise wrong(
            origin,
            "live, whole nodes come and go",
            hint="say how many GPUs each has: --gpus-per-node N",
        )
    launch, compat, signal_to = (
        layer.get(key) for key in ("launch", "compat", "preempt.signal_to")
    )
    if launch is not None and launch.value == PER_GPU:
        raise wrong(launch.origin, "live, torchrun starts a process for each GPU: not the cluster")
    if compat is not None and compat.value:
        raise wrong(compat.origin, f"live, variables of {compat.value} would be those of the start")
    program = " ".join(words)
    launches = signal_to is not None and signal_to.value == "ranks"
    if not launches and not names_torchrun(program):
        raise wrong(
            origin,
            "it is torchrun that takes nodes up and lets them go: the command does not name it",
            hint="where a script of yours does, say --checkpoint-preset torchrun",
        )
    if flag := flag_that_would_win(program):
        raise wrong(origin, f"torchrun's {flag} would win over the cluster's settings")
