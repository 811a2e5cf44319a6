"""Statements of the store, translated to PostgreSQL.

They are written once, for SQLite. In PostgreSQL placeholders differ, the word `user` is quoted, and
some parts of a job's body are columns.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dlq_master.model.jobs.job import Job

# The parts of a job's body by which lists are searched: the path, the column and its type. A search
# of JSON would read every body, and PostgreSQL reads none that holds a NUL.
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "person": ("person", "text"),
    "team": ("team", "text"),
    "first_start_time_s": ("first_start_time_s", "double precision"),
    "rank_base": ("rank_base", "bigint"),
    "request.gpu_type": ("gpu_type", "text"),
    "request.gpus": ("gpus", "bigint"),
    "request.or_gpu_types": ("or_gpu_types", "text[]"),
    "gpu_type_ran": ("gpu_type_ran", "text"),
    "array.array_id": ("array_id", "bigint"),
    "array_index": ("array_index", "bigint"),
}


def parts_of(job: Job) -> tuple[object, ...]:
    """The values of these columns, in order."""
    request, array = job.request, job.array
    return (
        job.person,
        job.team,
        job.first_start_time_s,
        job.priority_base,
        request.gpu_type,
        request.gpus,
        list(request.or_gpu_types),
        job.gpu_type_ran,
        None if array is None else array.array_id,
        job.array_index,
    )


class Statement(NamedTuple):
    """A statement with placeholders $1, $2 ..., and the names of its values; None: values come in
    order.
    """

    text: bytes
    names: Sequence[str] | None

    def values(self, given: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        """The values in the order of the placeholders."""
        if self.names is None:
            return given if isinstance(given, Sequence) else [*given.values()]
        assert isinstance(given, Mapping)
        return [given[name] for name in self.names]


_PART = re.compile(r"json_extract\(body, '\$\.([a-z_.]+)'\)")
_REWRITTEN: Final = (
    ("IN (SELECT value FROM json_each(body, '$.request.or_gpu_types'))", "= ANY(or_gpu_types)"),
    ("SELECT value FROM json_each(?)", "SELECT json_array_elements_text(CAST(? AS json))"),
    ("instr(", "strpos("),
    (" LIKE ", " ILIKE "),  # letters of ASCII are alike in either case: the columns have C's order
)
_INDEX_HINT = re.compile(r"\b(NOT INDEXED|INDEXED BY \w+)")
_USER = re.compile(r"\buser\b")
_MARK = re.compile(r"\?(\d*)|(?<![:\w]):([a-z_]+)")


@lru_cache(maxsize=512)
def translated(sql: str) -> Statement:
    """The statement for PostgreSQL."""
    for theirs, ours in _REWRITTEN:
        sql = sql.replace(theirs, ours)
    sql = _PART.sub(lambda found: PARTS[found[1]][0], sql)
    sql = _USER.sub('"user"', _INDEX_HINT.sub("", sql))
    names: list[str] = []
    count = 0

    def mark(found: re.Match[str]) -> str:
        nonlocal count
        if name := found[2]:
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"
        if number := found[1]:
            return f"${number}"
        count += 1
        return f"${count}"

    text = _MARK.sub(mark, sql)
    return Statement(text.encode(), names or None)
