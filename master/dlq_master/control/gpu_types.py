"""GPU types by the word people use: `h100` means `h100-80gb` where that is the only H100 there is.

A word is resolved once: at the submission, or, if no node with GPUs had registered by then, when
the first type that it can mean registers. Until then such a job waits with the reason `gpu_type`.
"""

from collections.abc import Iterable
from dataclasses import replace

from dlq_common.errors import InvalidRequest
from dlq_master.control.turn import Turn
from dlq_master.model.cluster import Cluster
from dlq_master.model.resources import Request


def known(cluster: Cluster) -> list[str]:
    """The types of all registered nodes, by name."""
    cluster.capacity.ready()
    return sorted(cluster.capacity.total)


def meant(word: str, types: Iterable[str]) -> list[str]:
    """Which of the types a word can mean: itself, else those that it begins, up to a dash."""
    found = [gpu_type for gpu_type in types if gpu_type.startswith(f"{word}-")]
    return [word] if word in types else found


def resolved(cluster: Cluster, request: Request) -> Request:
    """The request with the type that it means, as far as there is one. Raises InvalidRequest for a
    word that can mean several."""
    word = request.gpu_type
    if word is None:
        return request
    types = meant(word, known(cluster))
    if len(types) > 1:
        raise InvalidRequest(
            f"{word} can mean {' or '.join(types)}: name one", field="spec.resources.gpu_type"
        )
    return replace(request, gpu_type=types[0]) if types else request


def resolve_waiting(turn: Turn) -> None:
    """A node has registered: jobs that wait for a type may have meant what it brings.

    A word that can mean several stays as it is: nobody is here who could choose.
    """
    state = turn.state
    if not state.unknown_types:
        return
    types = known(state.cluster)
    for job_id in sorted(state.unknown_types):
        job = state.cluster.jobs[job_id]
        found = meant(job.request.gpu_type or "", types)
        if found or job.ended:
            state.unknown_types.discard(job_id)
        if len(found) == 1 and not job.ended and found[0] != job.request.gpu_type:
            request = replace(job.request, gpu_type=found[0])
            state.cluster.put_job(job._replace(request=request, version=job.version + 1))
            turn.note("gpu_type_resolved", job_id=job_id, gpu_type=found[0])
