"""Instants as Slurm's programs print them: `2026-11-29T09:10:11`, or as SLURM_TIME_FORMAT says."""

from __future__ import annotations

import os
import time
from datetime import date

import click

from dlq_cli.output.render import clean_line

STANDARD = "%Y-%m-%dT%H:%M:%S"
_LONGEST = 31  # bytes of a format
_WEEK, _YEAR = range(-1, 7), range(-365, 366)
_NEAR = {-1: "Ystday %H:%M", 0: "%H:%M:%S", 1: "Tomorr %H:%M"}


def shown_instant(at_s: float, unknown: str) -> str:
    """Local time; `unknown` for an instant that is not there."""
    if not at_s:
        return unknown
    at = time.localtime(at_s)
    word = os.environ.get("SLURM_TIME_FORMAT", "")
    return clean_line(time.strftime(_format(word, at) if word else STANDARD, at))


def told_format(program: str) -> None:
    """Tell of a SLURM_TIME_FORMAT that is none."""
    word = os.environ.get("SLURM_TIME_FORMAT", "")
    if word not in ("", "standard", "relative", _format(word, time.localtime(0))):
        shown = clean_line(word[:64])
        click.echo(f"{program}: error: invalid SLURM_TIME_FORMAT = '{shown}'", err=True)


def _format(word: str, at: time.struct_time) -> str:
    """Of the variable; a word that is no format is passed over, as in Slurm."""
    if word == "standard":
        return STANDARD
    if word == "relative":
        return _relative(at, date.fromtimestamp(time.time()))  # noqa: DTZ012 - the day of this host
    if "%" in word and len(os.fsencode(word)) <= _LONGEST:
        return word
    return STANDARD


def _relative(at: time.struct_time, today: date) -> str:
    """The format of Slurm's word `relative`, by the distance in days."""
    days = (date(at.tm_year, at.tm_mon, at.tm_mday) - today).days
    if days in _NEAR:
        return _NEAR[days]
    if days in _WEEK:
        return "%a %H:%M"
    return "%-d %b %H:%M" if days in _YEAR else "%-d %b %Y"
