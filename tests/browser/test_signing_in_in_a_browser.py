"""The form of a one-time link: a browser names the page that sends it, so the server takes it."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from dlq_web.door.shared_guard import SharedGuard
from support.browser_site import Site

pytestmark = [pytest.mark.browser, pytest.mark.short]
FORM = b'<!doctype html><form method="post" action="/enter"><button>Sign in</button></form>'


class SignInPage(BaseHTTPRequestHandler):
    """A form with the headers of the server for all users; it notes what the browser sends."""

    origins: list[str | None]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        for name, value in SharedGuard._headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(FORM)

    def do_POST(self) -> None:
        self.origins.append(self.headers["Origin"])
        self.do_GET()

    def log_message(self, *_told: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    SignInPage.origins = []
    server = HTTPServer(("127.0.0.1", 0), SignInPage)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_form_of_a_link_says_which_page_sent_it(site: Site, server: HTTPServer) -> None:
    address = f"http://127.0.0.1:{server.server_port}"
    page = site.browser.new_context().new_page()
    page.goto(f"{address}/enter")
    with page.expect_navigation():
        page.get_by_role("button").click()
    assert SignInPage.origins == [address], "`null` is refused as another page"
