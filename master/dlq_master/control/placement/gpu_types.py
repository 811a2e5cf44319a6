"""GPU types by the word people use: `h100` means `h100-80gb` where that is the only H100 there is.

A word is resolved once: at the submission, or when the first matching type registers, if no node
with GPUs had registered by then. Until then such a job waits with the reason `gpu_type`. Each word
of several (`h100,a100`: any one of these) is resolved by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean
from dlq_master.control.loop.turn import Turn
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.resources import Request

_FIELD = "spec.resources.gpu_type"


def known(cluster: Cluster) -> list[str]:
    """The types of all registered nodes, by name."""
    return cluster.capacity.gpu_types


def meant(word: str, types: Iterable[str]) -> list[str]:
    """The types that a word can mean: itself, else those that it begins, up to a dash."""
    found = [gpu_type for gpu_type in types if gpu_type.startswith(f"{word}-")]
    return [word] if word in types else found


def resolved(cluster: Cluster, request: Request) -> Request:
    """The request with the type that it means, as far as there is one. Raises InvalidRequest for a
    word that can mean several."""
    if request.without_gpus:
        return request
    words = []
    for word in request.gpu_types or ():
        types = meant(word, known(cluster))
        if len(types) > 1:
            raise InvalidRequest(
                f"{word} can mean {' or '.join(types)}: name one, or {','.join(types)} for any "
                "one of them",
                field=_FIELD,
            )
        words += types or [word]
    return _naming(request, words)


def check_known(turn: Turn, request: Request) -> None:
    """Raises InvalidRequest for a type among several of which no node has registered, nor could be
    rented. A typing error would else stay hidden, because the other types match.
    """
    if request.without_gpus:
        return
    types = {*known(turn.state.cluster), *(pool.gpu_type for pool in turn.state.config.pools)}
    for word in request.gpu_types or ():
        if known(turn.state.cluster) and word not in types:
            there = sorted(types)
            raise InvalidRequest(
                f"no node has {word} GPUs (there are: "
                f"{', '.join(there)}){did_you_mean(word, there)}",
                field=_FIELD,
            )


def resolve_waiting(turn: Turn) -> None:
    """A node has registered: jobs that wait for a type may have meant what it brings.

    A word that can mean several stays as it is: nobody is here who could choose.
    """
    state = turn.state
    if not state.jobs.unknown_types:
        return
    types = known(state.cluster)
    for job_id in sorted(state.jobs.unknown_types):
        job = state.cluster.jobs[job_id]
        words = job.request.gpu_types or ()
        found = [meant(word, types) for word in words]
        if all(found) or job.ended:
            state.jobs.unknown_types.discard(job_id)
        named = [it[0] if len(it) == 1 else word for it, word in zip(found, words, strict=True)]
        request = _naming(job.request, named)
        if not job.ended and request != job.request:
            state.cluster.put_job(job._replace(request=request, version=job.version + 1))
            turn.note(
                "gpu_type_resolved", job_id=job_id, gpu_type=",".join(request.gpu_types or ())
            )


def _naming(request: Request, words: Sequence[str]) -> Request:
    """The request with these types, each once; itself where it names them already."""
    if tuple(words) == (request.gpu_types or ()):
        return request
    first, *others = dict.fromkeys(words) or (None,)
    return replace(request, gpu_type=first, or_gpu_types=tuple(others))
