"""A cluster with jobs of every kind, its `dlq web`, and a browser that has signed in.

One of each serves all browser tests. The server has a terminal, and gives a new link for each press
of Enter: a test may have a session of its own, and end it.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from support.harness import Daemons

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PICTURES = ROOT / "build" / "browser"
TEMPLATES = ROOT / "web/dlq_web/pages/templates"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS = 30_000
SERIOUS = ("serious", "critical")
HOSTILE = "<img src=x onerror=alert(1)>"
TALKS = 'for i in $(seq 900); do printf "line %s \\033[31mred\\033[0m\\n" $i; sleep 1; done'
# What a browser says of an answer that is an error, and of a lost line. Those are told by pages.
_LOST = ("Failed to load resource", "net::ERR")


# The limits of calls are short once a test has set `hasty`.
HASTY = """
const limit = AbortSignal.timeout;
AbortSignal.timeout = (ms) => limit.call(AbortSignal, window.hasty ? 50 : ms);
"""


def navigation() -> list[str]:
    """The address of each page that the navigation has."""
    return re.findall(r'\("(/[^"]*)", "[^"]+"\)', (TEMPLATES / "base.html").read_text())


class Serving(Protocol):
    """A server at an address, which makes links that sign a browser in."""

    base: str

    def new_link(self) -> str:
        """A link that nobody has used."""


@dataclass
class Site:
    """The cluster, the server and the browser."""

    daemons: Daemons
    server: Serving
    browser: Any
    state: Any  # the cookies of the session
    faults: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)  # of this test
    others: tuple[str, ...] = ()  # addresses to which a page may lead, such as an issuer's

    @property
    def base(self) -> str:
        """The address of the server."""
        return self.server.base

    def page(self, state: Any = None, **settings: Any) -> Any:
        """A page in a browser profile of its own, signed in; its faults are noted."""
        context = self.browser.new_context(storage_state=state or self.state, **settings)
        context.on("page", self._watch)
        return context.new_page()

    def at(self, path: str, **settings: Any) -> Any:
        """The same, at an address."""
        page = self.page(**settings)
        page.goto(f"{self.base}{path}")
        return page

    def own_session(self) -> Any:
        """The cookies of another session of the same person, which a test may end."""
        context = self.browser.new_context()
        context.new_page().goto(self.server.new_link())
        return context.storage_state()

    def submitted(self, name: str, *words: str) -> str:
        """The number of a new job of this test, which sleeps if no command is given."""
        command = words or ("-G", "1", "--", "sleep", "900")
        said = self.daemons.said("submit", "--name", name, *command)
        self.jobs.append(said.split()[-1])
        return self.jobs[-1]

    def tidy(self) -> list[str]:
        """No page and no job is left of a test; what went wrong meanwhile."""
        for context in self.browser.contexts:
            context.close()
        if self.jobs:
            self.daemons.dlq("cancel", "--kill", "-y", *self.jobs)
        faults = list(self.faults)
        self.jobs.clear()
        self.faults.clear()
        return faults

    def picture(self, page: Any, name: str) -> None:
        """Keep a picture of the page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}.png")

    def findings(self, page: Any, impacts: Sequence[str] = SERIOUS) -> list[str]:
        """What axe finds wrong in a page, by the weight of the finding, each with its element."""
        from axe_playwright_python import sync_playwright as axe

        found = axe.Axe().run(page).response["violations"]
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found
            if one["impact"] in impacts
        ]

    def _watch(self, page: Any) -> None:
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._asked)
        page.on("response", self._answered)
        page.on("dialog", lambda dialog: dialog.accept())

    def _console(self, told: Any) -> None:
        if told.type == "error" and not any(word in told.text for word in _LOST):
            self.faults.append(told.text)

    def _answered(self, response: Any) -> None:
        part = response.request.resource_type in ("stylesheet", "script", "image", "font")
        if part and response.status >= 400:
            self.faults.append(f"{response.status} for {response.url}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"{self.base}/", "data:", "blob:", *self.others)):
            self.faults.append(f"a request to {request.url}")


class Server:
    """`dlq web` at a terminal."""

    def __init__(self, daemons: Daemons) -> None:
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [BIN / "dlq", "web"], env=os.environ | daemons.environment(), stdin=theirs,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        os.close(theirs)
        assert self.process.stderr is not None
        self._said = self.process.stderr
        self.link = self._next_link()
        self.base = self.link.partition("/enter")[0]

    def new_link(self) -> str:
        """A link that nobody has used."""
        os.write(self._terminal, b"\n")
        return self._next_link()

    def end(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate()
        self.process.wait()
        self._said.close()
        os.close(self._terminal)

    def _next_link(self) -> str:
        while line := self._said.readline():
            if found := re.search(r"open (http://\S+)", line):
                return found[1]
        raise AssertionError("dlq web has ended")


@contextmanager
def busy_cluster(place: Path) -> Iterator[Daemons]:
    """Two nodes with jobs that run, wait and have failed."""
    with Daemons(place, ("n1", "n2"), twin=True).up() as daemons:
        for number in range(3):
            daemons.said("submit", "-G", "4", "--name", f"train-{number}", "--", "sh", "-c", TALKS)
        for _ in range(3):
            daemons.said("submit", "-G", "8", "--name", HOSTILE, "--", "sleep", "900")
        daemons.said("submit", "-G", "1", "--name", "fails", "--", "sh", "-c", "echo boom; exit 3")
        yield daemons
        daemons.said("cancel", "-u", "me", "--kill", "--wait", "-y")  # jobs outlive their agents


@contextmanager
def signed_in_site(daemons: Daemons) -> Iterator[Site]:
    """The server of this cluster, and a browser in which its user has signed in."""
    from playwright.sync_api import sync_playwright

    server = Server(daemons)
    try:
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium(), args=list(FLAGS))
            context = browser.new_context()
            context.new_page().goto(server.link)
            yield Site(daemons, server, browser, context.storage_state())
            browser.close()
    finally:
        server.end()


def chromium() -> str:
    """The browser of this machine."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found is not None, "there is no chromium: apt-get install chromium"
    return found
