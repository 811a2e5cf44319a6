"""Whose a job is: a person's, not a name's. A name may be given to another person. The jobs of its
former owner stay theirs, and never become those of the new one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Owned(Protocol):
    """The owner of a value. `person` "": stored before persons were told apart."""

    @property
    def user(self) -> str: ...
    @property
    def person(self) -> str: ...
    @property
    def submit_time_s(self) -> float: ...


class Owner(NamedTuple):
    """Whose a job is, without the job."""

    user: str
    person: str
    submit_time_s: float


def new_person(name: str, number: int) -> str:
    """The id of a person; `number` was never given before. No user name looks like it."""
    return f"{name}#{number}"


def belongs(owned: Owned, name: str, person: str, since_s: float) -> bool:
    """Whether it is this person's, with the name since `since_s`."""
    if owned.user != name:
        return False
    if owned.person:
        return owned.person == (person or name)
    return owned.submit_time_s >= since_s
