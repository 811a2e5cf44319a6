"""The declaration of one field of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dlq_common.job_fields.limits import Limit
from dlq_common.job_fields.wire import Plain

T = TypeVar("T")


class Flag(NamedTuple):
    """A flag of `dlq submit` and of #DLQ lines."""

    names: tuple[str, ...]
    key: str  # the key that it sets
    help: str
    metavar: str  # empty: a switch
    repeat: bool

    @property
    def parameter(self) -> str:
        """A Python name, unique among flags."""
        return self.names[-1 if self.names[0].startswith("--") else 1].strip("-").replace("-", "_")

    @property
    def shown(self) -> str:
        """All its long names, for errors that cannot know which of them was written."""
        return "/".join(name for name in self.names if name.startswith("--"))


@dataclass(frozen=True, kw_only=True)  # no slots: they refuse JobField[int](...) before 3.13
class JobField(Generic[T]):
    """One key of a spec file.

    `wire` is None for a key that shares a field of JobSpec with other keys or whose value is a
    message: `dlq_cli.spec.message` and `.stored` write those by hand.
    """

    key: str
    read: Callable[[object], object]
    flag: str = ""  # "-t --time TIME": its names, and unless it is a switch its value; empty: none
    help: str = ""
    repeat: bool = False  # each flag adds a value
    sample: str  # in the template, as TOML
    comment: str = ""  # there; empty: the help
    live: bool = False  # it counts there; the others wait behind a `#`
    wire: Plain[T] | None = None
    limit: Limit | None = None
    label: str = ""  # before its value in the output of `dlq submit --test-only`
    text: Callable[[T], str] = str  # its value there; empty: no line
    default: str = ""  # the text there when the spec does not say it; empty: no line
    editable: bool = False  # `dlq update` and UpdateJobRequest have it under the same names
    clear: str = ""  # the field of UpdateJobRequest that takes the value away
    to_agent: bool = False  # a launch has it among its `fields`; a scalar, as it is journaled
    launch: str = ""  # of the first fields: the name that it has in the agent's record of a launch

    def flags(self) -> Iterator[Flag]:
        """Its flag, if it has one."""
        words = self.flag.split()
        names = tuple(word for word in words if word.startswith("-"))
        if names:
            yield Flag(names, self.key, self.help, "".join(words[len(names) :]), self.repeat)

    def of(self, values: Mapping[str, object]) -> T | None:
        """Its value among values by key; None: it was not said."""
        return values.get(self.key)  # type: ignore[return-value]  # made by `read` or `wire`
