"""The issuer of the tests as a server on loopback: a page with a button for each of its users.

`PYTHONPATH=tests python -m support.oidc_server` runs it by hand, for a web.toml that is tried out.
It asks nobody for a password, so it is for nothing else.
"""

from __future__ import annotations

import asyncio
import html
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import click

from dlq_common.clock import SteadyClock
from dlq_common.errors import DlqError, Unauthenticated
from dlq_web.entrance.issuer import ServerRefused
from support.oidc_issuer import CLIENT_ID, CLIENT_SECRET, OidcIssuer

PAGE = """<!doctype html><html lang="en"><title>The test issuer</title><h1>Who are you?</h1>
<form method="post">{buttons}</form>"""
BUTTON = '<p><button name="user" value="{name}">I am {name}</button></p>'
TOML = """[openid]
issuer = "{address}"
client_id = "{client}"
client_secret_file = "SECRET"   # a file of mode 0600 with the line: {secret}
told_groups = {groups}
"""


@dataclass
class IssuerSite:
    """A running issuer, and the groups of each of its users."""

    issuer: OidcIssuer
    port: int
    users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: list[Mapping[str, str]] = field(default_factory=list)
    """The parameters of each sign-in that was begun."""

    def claims(self, name: str) -> dict[str, Any]:
        """The claims about a user; each has a subject of their own."""
        return {"preferred_username": name, "sub": f"u-{name}", "groups": [*self.users[name]]}


@contextmanager
def issuer_site(port: int, users: Mapping[str, tuple[str, ...]]) -> Iterator[IssuerSite]:
    """The issuer at this port, until the end of the block."""
    issuer = OidcIssuer(SteadyClock(), address=f"http://localhost:{port}")
    site = IssuerSite(issuer, port, dict(users))
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler_of(site: IssuerSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path == "/authorize":
                site.asked.append(_fields(urlsplit(self.path).query))
                buttons = "".join(BUTTON.format(name=html.escape(name)) for name in site.users)
                self._say(200, PAGE.format(buttons=buttons).encode(), "text/html")
            elif path == "/favicon.ico":
                self._say(204, b"", "image/png")
            else:
                self._fetched(None)

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            form = _fields(self.rfile.read(size).decode())
            if urlsplit(self.path).path != "/authorize":
                self._fetched(form)
                return
            back = _fields(urlsplit(self.path).query)["redirect_uri"]
            told = site.issuer.authorize(self.path, **site.claims(form["user"]))
            self.send_response(303)
            self.send_header("Location", f"{back}?{urlencode(told)}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _fetched(self, form: dict[str, str] | None) -> None:
            proof = self.headers.get("Authorization", "")
            try:
                raw = asyncio.run(site.issuer.fetch(self.path, form, proof))
                self._say(200, raw, "application/json")
            except DlqError as error:
                self._say(*_refusal(error), "application/json")

        def _say(self, status: int, raw: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_told: object) -> None:
            """Nothing."""

    return Handler


def _refusal(error: DlqError) -> tuple[int, bytes]:
    if isinstance(error, ServerRefused):
        return 401, b'{"error": "invalid_client"}'
    if isinstance(error, Unauthenticated):
        return 400, b'{"error": "invalid_grant"}'
    return 503, b"{}"


def _fields(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def toml_of(site: IssuerSite, secret_file: object = "SECRET") -> str:
    """The table of web.toml for this issuer."""
    groups = sorted({group for told in site.users.values() for group in told})
    return TOML.format(
        address=site.issuer.address, client=CLIENT_ID, secret=CLIENT_SECRET,
        groups=str(groups).replace("'", '"'),
    ).replace("SECRET", str(secret_file))  # fmt: skip


@click.command()
@click.option("--port", type=int, default=9000, show_default=True)
@click.option("--user", "users", multiple=True, help="NAME, or NAME=GROUP,GROUP.")
def main(port: int, users: tuple[str, ...]) -> None:
    """Run the issuer until Ctrl-C, and print its table for web.toml."""
    told = [one.partition("=") for one in users or ("alice",)]
    groups = {name: tuple(filter(None, rest.split(","))) for name, _, rest in told}
    with issuer_site(port, groups) as site:
        click.echo(toml_of(site))
        threading.Event().wait()


if __name__ == "__main__":
    main()
