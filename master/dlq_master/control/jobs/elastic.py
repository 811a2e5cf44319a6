"""Elastic jobs as people ask for them: sizes that the cluster could never hold, and other sizes
later on.

A restart of the master keeps all of it, since it lies with the job; agents and silence have no part
in it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from dlq_common.errors import IllegalTransition, InvalidRequest, Unsatisfiable
from dlq_common.text.sizes import format_sizes
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement import scheduling
from dlq_master.control.stimuli import SAME, UpdateJob
from dlq_master.control.trials import speeds
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.resources import Request


def wanted(turn: Turn, ask: UpdateJob, job: Job, after: Job) -> Job:
    """The job with the sizes that are asked for. The request stays as it is. Its size has to be one
    of the sizes, like the size that it holds or is about to hold.
    """
    if ask.sizes is SAME or ask.sizes == job.request.sizes:
        return after
    sizes, name = ask.sizes, shown_id(job)
    told = format_sizes(sizes)
    if sizes and job.request.mixed:
        raise InvalidRequest(
            f"job {name} may lie on several GPU types at once: it has no other sizes",
            field="elastic",
        )
    if sizes and job.request.gpus not in sizes:
        raise InvalidRequest(
            f"job {name} asks for {job.request.gpus} GPUs, which are none of its sizes ({told})",
            field="elastic",
        )
    if sizes and after.steps and job.request.gpus != sizes[0]:
        raise InvalidRequest(
            f"the deadline of job {name} is promised for {job.request.gpus} GPUs: its base has to "
            "be that",
            field="elastic",
        )
    held = _held(turn, job)
    if held and job.request.live:
        raise IllegalTransition(
            f"job {name} is resized live, and its torchrun knows its sizes from its start",
            hint=f"dlq requeue --hold {name} takes it off its GPUs first",
            state=job.state.value,
        )
    for gpus in held:
        if gpus not in (sizes or (job.request.gpus,)):
            raise IllegalTransition(
                f"job {name} runs on {gpus} GPUs, and that has to be one of its sizes",
                hint=f"dlq requeue --hold {name} takes it off its GPUs first",
                state=job.state.value,
            )
    try:
        request = replace(job.request, sizes=sizes, live=job.request.live and bool(sizes))
    except ValueError as error:
        raise InvalidRequest(f"elastic: {error}", field="elastic") from None
    check_room(turn, request)
    return speeds.learned(after._replace(request=request))


def check_room(turn: Turn, request: Request) -> None:
    """Raises Unsatisfiable where the registered nodes could never hold it at its largest size.
    Costs a search for a place, and log(sizes) of them for the refusal."""
    sizes = request.sizes
    if not sizes or scheduling.never(turn, request, sizes[-1]) is None:
        return
    fit = bisect_left(
        sizes, True, key=lambda gpus: scheduling.never(turn, request, gpus) is not None
    )
    largest = f"the largest of its sizes that they could is {sizes[fit - 1]}; " if fit else ""
    raise Unsatisfiable(
        f"no set of the cluster's nodes could ever hold this job on {sizes[-1]} GPUs",
        hint=f"{largest}see what there is: dlq nodes",
    )


def told(job: Job) -> str:
    """Its sizes, as a change of them is told."""
    return format_sizes(job.request.sizes) or "none"


def _held(turn: Turn, job: Job) -> list[int]:
    attempt = turn.state.cluster.live_attempt(job)
    if attempt is None:
        return [] if job.regrant is None else [job.regrant.width]
    return [part.width for part in (attempt.lease.allocation, attempt.regrant) if part is not None]
