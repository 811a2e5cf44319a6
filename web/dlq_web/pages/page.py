"""Fills a template: everything in it is escaped, and nothing in it is a script."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dlq_cli.output.render import clean_line
from dlq_common.errors import DlqError
from dlq_web.door.sessions import person_of, session_of

_HERE = Path(__file__).parent
STATIC = _HERE / "static"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["line"] = clean_line
    return templates


def page(http: Request, name: str, title: str, **content: Any) -> Response:
    """A page of somebody who is signed in."""
    person = person_of(http)
    told = {
        "title": title,
        "person": person.name,
        "role": person.role,
        "cluster": person.cluster,
        "csrf": session_of(http).csrf,
        "here": http.url.path,
        **content,
    }
    return HTMLResponse(_templates().get_template(f"{name}.html").render(told))


def refusal_page(error: DlqError, status: int) -> Response:
    """A page that says what was refused, and what helps. Anybody may see it."""
    told = {"title": "Not possible", "what": error.what, "hint": error.hint, "reason": error.reason}
    return HTMLResponse(_templates().get_template("refusal.html").render(told), status)
