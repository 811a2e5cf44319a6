"""Jobs whose nodes come and go while they run, by torchrun: required keys, and forbidden keys."""

from __future__ import annotations

from dlq_cli.spec.values.elastic import Elastic
from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_common.job_fields.reading.words import PER_GPU
from dlq_common.live_resize import LIVE, flag_that_would_win, names_torchrun


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
