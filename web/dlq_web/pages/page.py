"""Fills a template: everything in it is escaped, and nothing in it is a script."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, Response

from dlq_cli.output.render import clean_line
from dlq_common.errors import DlqError
from dlq_web.door.sessions import person_of, session_of

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
LOOK = ("dlq_common.page", "static")  # the package, and its folder
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC\b", re.ASCII)
_TIME = Markup('<time datetime="{}">{}</time>')


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
    templates.filters["times"] = with_times
    return templates


def page(http: Request, name: str, title: str, **content: Any) -> Response:
    """A page of somebody who is signed in."""
    told = {"title": title, **_frame(http), **content}
    return HTMLResponse(_templates().get_template(f"{name}.html").render(told))


def _frame(http: HTTPConnection) -> dict[str, Any]:
    """All around the content of a page of somebody who is signed in."""
    person = person_of(http)
    return {
        "person": person.name,
        "role": person.role,
        "cluster": person.cluster,
        "csrf": session_of(http).csrf,
        "here": http.url.path,
        "shared": person.user is not None,
    }


def with_times(text: str) -> Markup:
    """A text whose instants the browser shows in its reader's zone; without script they are UTC.
    An instant behind a flag is to be typed as it stands.
    """
    parts, last = [], 0
    for found in _INSTANT.finditer(text):
        stamp = f"{found[1]}T{found[2]}Z"
        parts += [escape(text[last : found.start()]), _TIME.format(stamp, found[0])]
        last = found.end()
    return Markup("").join([*parts, escape(text[last:])])


def open_page(template: str, title: str, **content: Any) -> Response:
    """A page for everybody, also for those who are not signed in."""
    return HTMLResponse(
        _templates().get_template(f"{template}.html").render(title=title, **content)
    )


def refusal_page(http: HTTPConnection, error: DlqError, status: int) -> Response:
    """A page that says what was refused, and what helps. Anybody may see it. It leads on to other
    pages where somebody is signed in.
    """
    told = {"title": "Not possible", "what": error.what, "hint": error.hint, "reason": error.reason}
    signed_in = getattr(http.state, "session", None) is not None
    frame = _frame(http) | {"after": -1} if signed_in else {"person": ""}
    return HTMLResponse(_templates().get_template("refusal.html").render(told | frame), status)
