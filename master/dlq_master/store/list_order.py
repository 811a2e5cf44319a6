"""The orders and search words of lists of jobs, for jobs in memory and for rows on disk.

Both forms stand side by side, so that a list continues from the one to the other. A rank is a job's
place in an order, as a rising value. Jobs without the value of the order come last. Equal jobs are
in the order of their ids.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import CORE_TYPE

Rank = tuple[bool, Any, int]  # whether the value is missing; the value; the number of the job
Term = tuple[str, Sequence[object]]  # a condition of SQL, and its values


class _Key(NamedTuple):
    """A value of jobs: for one in memory, and for the row of an ended one."""

    value: Callable[[Job], Any]
    sql: str
    always: bool = True  # no row lacks it


KEYS: Final[Mapping[str, _Key]] = {
    "number": _Key(lambda job: 0, "job_id"),
    "submit": _Key(lambda job: job.submit_time_s, "submit_time_s"),
    "start": _Key(
        lambda job: job.first_start_time_s,
        "json_extract(body, '$.first_start_time_s')",
        always=False,
    ),
    "end": _Key(lambda job: job.end_time_s, "end_time_s"),
    "user": _Key(lambda job: job.user, "user"),
    "priority": _Key(
        lambda job: job.priority_base, "coalesce(json_extract(body, '$.rank_base'), 0)"
    ),
    "gpus": _Key(
        lambda job: job.request.real_gpus,
        f"CASE WHEN json_extract(body, '$.request.gpu_type') = '{CORE_TYPE}' THEN 0"
        " ELSE json_extract(body, '$.request.gpus') END",
    ),
}


class ListOrder(NamedTuple):
    """The order of a list of jobs."""

    key: str = "number"  # one of KEYS
    falling: bool = False

    @property
    def word(self) -> str:
        """The order as a word: gpus, or -gpus."""
        return f"-{self.key}" if self.falling else self.key

    def rank(self, job: Job, *, known: bool = True) -> Rank:
        """The place of a job; without `known` that of a job without the value."""
        value = KEYS[self.key].value(job) if known else None
        number = -job.job_id if self.falling else job.job_id
        if value is None:
            return True, 0, number
        return False, self._rising(value), number

    def _rising(self, value: Any) -> Any:
        if not self.falling:
            return value
        # Of two texts the one that falls behind has the smaller letters, or ends first.
        return (*(-ord(letter) for letter in value), 1) if isinstance(value, str) else -value

    def sql(self, after: Rank | None) -> tuple[Term, str]:
        """The SQL for rows behind a place, and their order. An index serves both, if
        there is one.
        """
        (_, value, always), falls = KEYS[self.key], " DESC" if self.falling else ""
        beyond = "<" if self.falling else ">"
        order = f"{value}{falls}, job_id{falls}"
        if not always:
            order = f"(({value}) IS NULL), {order}"
        if after is None:
            return ("1 = 1", ()), order
        missing, place, number = after[0], after[1], abs(after[2])
        if self.key == "number":
            return (f"job_id {beyond} ?", (number,)), order
        if missing:
            return (f"({value}) IS NULL AND job_id {beyond} ?", (number,)), order
        told = self._told(place)
        behind = f"{value} {beyond}= ? AND ({value} {beyond} ? OR job_id {beyond} ?)"
        if not always:
            behind = f"(({value}) IS NULL OR {behind})"
        return (behind, (told, told, number)), order

    def _told(self, place: Any) -> Any:
        """The value of a job in this place."""
        if not self.falling:
            return place
        return "".join(chr(-code) for code in place[:-1]) if isinstance(place, tuple) else -place


BY_NUMBER: Final = ListOrder()


def has_words(words: Sequence[str], job: Job, *, known: bool = True, named: bool = True) -> bool:
    """Whether each word is a part of the job's name or user, or its id.

    ASCII letters match in either case, as in SQLite. The name counts only with `known`, the user
    only with `named`.
    """
    texts = [small(job.name)] if known else []
    if named:
        texts.append(small(job.user))
    return all(any(word in text for text in texts) or _is_number(word, job) for word in words)


def word_terms(words: Sequence[str]) -> Iterator[Term]:
    """The same condition for rows."""
    for word in words:
        terms, values = ["name LIKE ? ESCAPE '!'", "user LIKE ? ESCAPE '!'"], [_like(word)] * 2
        array, _, index = word.partition("_")
        if _is_count(array) and not index:
            terms += ["job_id = ?", "json_extract(body, '$.array.array_id') = ?"]
            values += [int(array)] * 2  # type: ignore[list-item]  # values of SQL
        elif _is_count(array) and _is_count(index):
            terms.append(
                "json_extract(body, '$.array.array_id') = ?"
                " AND coalesce(json_extract(body, '$.array_index'), 0) = ?"
            )
            values += [int(array), int(index)]  # type: ignore[list-item]
        yield f"({' OR '.join(terms)})", values


def _like(word: str) -> str:
    """The pattern of texts with this word: half the price of `instr` and `lower`."""
    for sign in "!%_":
        word = word.replace(sign, f"!{sign}")
    return f"%{word}%"


def has_type(gpu_type: str, job: Job, *, known: bool = True) -> bool:
    """Whether it asks for this type. With `known` also whether it would accept it, or has run on
    it.
    """
    request = job.request
    if request.gpu_type == gpu_type:
        return True
    return known and (gpu_type in request.or_gpu_types or job.gpu_type_ran == gpu_type)


def type_term(gpu_type: str) -> Term:
    """The same condition for rows."""
    told = (
        "(json_extract(body, '$.request.gpu_type') = ? OR json_extract(body, '$.gpu_type_ran') = ?"
        " OR ? IN (SELECT value FROM json_each(body, '$.request.or_gpu_types')))"
    )
    return told, (gpu_type, gpu_type, gpu_type)


def _is_number(word: str, job: Job) -> bool:
    array, _, index = word.partition("_")
    if not _is_count(array) or (index and not _is_count(index)):
        return False
    if index:
        own = job.array
        return own is not None and (own.array_id, job.array_index) == (int(array), int(index))
    return int(array) in (job.job_id, job.array.array_id if job.array is not None else -1)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def small(text: str) -> str:
    """The text with ASCII letters in small."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "replace").lower().decode()  # of bytes only ASCII has cases
