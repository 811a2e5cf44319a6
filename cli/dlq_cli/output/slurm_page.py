"""The page of JSON that Slurm 22.05 prints (openapi v0.0.38), around jobs or nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

RELEASE = "22.05.8"


def meta(plugin: str, name: str) -> dict[str, object]:
    """The head of every page, which names its layout."""
    return {
        "plugin": {"type": f"openapi/{plugin}", "name": name},
        "Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}, "release": RELEASE},
    }


def controller_page(**parts: object) -> dict[str, object]:
    """The page of squeue, sinfo and scontrol."""
    return {"meta": meta("v0.0.38", "Slurm OpenAPI v0.0.38"), "errors": [], **parts}


def accounting_page(**parts: object) -> dict[str, object]:
    """The page of sacct."""
    return {"meta": meta("dbv0.0.38", "Slurm OpenAPI DB v0.0.38"), "errors": [], **parts}


def show(page: Mapping[str, object], *, as_yaml: bool) -> None:
    """JSON, which is YAML as well: one text serves both."""
    del as_yaml
    click.echo(json.dumps(page, indent=2, ensure_ascii=True))
