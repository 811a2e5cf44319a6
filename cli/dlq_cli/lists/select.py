"""The jobs that a user means: `17`, `17-20`, `17.2`, a name where it is unique; `12` of an array,
`12_4`; `12_learner` of a group, and `12_actor.1` where a member is several jobs.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.words import has_ended
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound, PermissionDenied
from dlq_common.text.arrays import TasksText, parse_tasks
from dlq_common.text.names import shown

MOST_JOBS = 10_000

_ID = re.compile(r"[0-9]{1,18}", re.ASCII)
_ATTEMPT = re.compile(r"([0-9]{1,18}(?:_[0-9]{1,9})?)\.([0-9]{1,9})", re.ASCII)
_MEMBER = re.compile(
    r"([0-9]{1,18})_([A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*)((?:\.[0-9]{1,9}){0,2})", re.ASCII
)
_RANGE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


class Named(NamedTuple):
    """One job, and the attempt if the user named one (0: none)."""

    job_id: str
    attempt: int


def one_job(jobs: Jobs, text: str) -> Named:
    """The job of `17`, `17.2`, `12_4`, `12_4.2`, `12_learner` or a unique name; an id is not looked
    up, the call will tell.
    """
    if _ID.fullmatch(text):
        return Named(str(int(text)), 0)
    if found := _ATTEMPT.fullmatch(text):
        return Named(one_job(jobs, found[1]).job_id, int(found[2]))
    if (tasks := _tasks(text)) is not None:
        if len(tasks.indexes) > 1:
            raise InvalidRequest(f"{shown(text)} are {len(tasks.indexes)} jobs: say which")
        return Named(_looked_up(jobs, [text])[0], 0)
    if members := _members(jobs, text):
        if len(members) > 1:
            which = " or ".join(f"{text}.{number}" for number in range(min(2, len(members))))
            raise InvalidRequest(f"{shown(text)} are {len(members)} jobs", hint=f"say {which}")
        return members[0]
    return Named(_by_name(jobs, text).job_id, 0)


def own_spec(jobs: Jobs, job_id: str, user: str) -> job_service_pb2.GetJobResponse:
    """A job with its spec, if it is this user's, because another user's environment may hold
    secrets.

    PermissionDenied for operators, as they see everybody's jobs; NotFound for other users, as they
    see only their own.
    """
    answer = jobs.get(job_id)
    if answer.job.user != user:
        raise PermissionDenied(
            f"job {job_id} belongs to {shown(answer.job.user)}: its spec is for its owner alone",
            user=user,
        )
    return answer


def several_jobs(jobs: Jobs, texts: Sequence[str]) -> list[str]:
    """The ids of many words, in the order written, each once. A range selects the existing jobs; an
    array's number selects all its tasks.
    """
    ids = dict.fromkeys(_looked_up(jobs, targets(jobs, texts)))
    if len(ids) > MOST_JOBS:
        raise InvalidRequest(f"more than {MOST_JOBS} jobs at once")
    return list(ids)


def targets(jobs: Jobs, texts: Sequence[str]) -> list[str]:
    """The words for a call that takes many tasks at once: ids, and `12` and `12_[0-3]` as they
    are.
    """
    words: dict[str, None] = {}
    for text in texts:
        if found := _RANGE.fullmatch(text):
            words.update(dict.fromkeys(_range(jobs, int(found[1]), int(found[2]), text)))
        elif _tasks(text) is not None:
            words[text] = None
        elif members := _members(jobs, text):
            words.update(dict.fromkeys(member.job_id for member in members))
        else:
            words[one_job(jobs, text).job_id] = None
    if len(words) > MOST_JOBS:
        raise InvalidRequest(f"more than {MOST_JOBS} jobs at once")
    return list(words)


def _tasks(text: str) -> TasksText | None:
    try:
        return parse_tasks(text)
    except ValueError as error:
        raise InvalidRequest(f"{shown(text)}: {error}") from None


def _members(jobs: Jobs, text: str) -> list[Named]:
    """The jobs of a member of a group; empty: it names none."""
    found = _MEMBER.fullmatch(text)
    if found is None:
        return []
    group_id, name, numbers = found[1], found[2], [int(it) for it in found[3].split(".")[1:]]
    listed = jobs.list(job_ids=[group_id]).jobs
    members = [job for job in listed if job.array_task.member == name]
    if len(members) > 1 and numbers:
        number = numbers.pop(0)
        members = [job for job in members if job.array_task.member_index == number]
    if len(numbers) > 1 or (numbers and len(members) > 1):
        return []
    return [Named(job.job_id, numbers[0] if numbers else 0) for job in members]


def _looked_up(jobs: Jobs, words: Sequence[str]) -> list[str]:
    """The ids that words of ids stand for; a word that stands for none stays, the call will
    tell.
    """
    if not words:
        return []
    found = jobs.list(job_ids=words).jobs
    ids = {job.job_id for job in found}
    tasks: dict[str, dict[int, str]] = {}
    for job in found:
        if job.HasField("array_task"):
            tasks.setdefault(job.array_task.array_id, {})[job.array_task.index] = job.job_id
    return [job_id for word in words for job_id in _meant(word, ids, tasks)]


def _meant(word: str, ids: Container[str], tasks: Mapping[str, Mapping[int, str]]) -> list[str]:
    if word in ids:
        return [word]
    if word in tasks:
        return list(tasks[word].values())
    named = parse_tasks(word)
    known = {} if named is None else tasks.get(named.array_id, {})
    if named is None or not set(named.indexes) <= known.keys():
        return [word]
    return [known[index] for index in named.indexes]


def _range(jobs: Jobs, first: int, last: int, text: str) -> list[str]:
    if last < first or last - first >= MOST_JOBS:
        raise InvalidRequest(f"{text} is empty or holds more than {MOST_JOBS} jobs")
    wanted = [str(number) for number in range(first, last + 1)]
    found = [job.job_id for job in jobs.list(job_ids=wanted).jobs]
    if not found:
        raise NotFound(f"there is no job {text}", kind="job", id=text)
    return found


def _by_name(jobs: Jobs, name: str) -> job_pb2.Job:
    """The one job of this name: among the living ones, else among all."""
    if not name.strip():  # it would fit every job
        raise InvalidRequest(
            "the word for a job is empty", hint="is a variable of a script not set?"
        )
    found = jobs.list(name=name).jobs
    alive = [job for job in found if not has_ended(job)]
    candidates = alive or found
    if not candidates:
        raise NotFound(f"there is no job {shown(name)}", kind="job", id=name[:64])
    if len(candidates) > 1:
        ids = ", ".join(job.job_id for job in candidates[:10])
        raise InvalidRequest(
            f"{len(candidates)} jobs are named {shown(name)}", hint=f"say which by its id: {ids}"
        )
    return candidates[0]
