"""`dlq-web` and `dlq-notify` on a booted host: configured, and used by a user."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from support.page_certificate import page_certificate
from support.systemd_site import MASTER, Site
from support.waiting import wait_until

WEB, NOTIFY = "dlq-web.service", "dlq-notify.service"
ORIGIN = "https://head"
HOOK = "http://head:8088/hook"
CALLS = "/tmp/calls.jsonl"
WATCHED = "[Service]\nWatchdogSec=8\n"
# A browser of ada's, which has the cookies of the host's file system.
BROWSER = """
import http.cookiejar, ssl, sys, urllib.parse, urllib.request
ORIGIN, wanted, link = sys.argv[1:4]
jar = http.cookiejar.LWPCookieJar("/home/ada/cookies")
if not link:
    jar.load(ignore_discard=True)
tls = ssl.create_default_context(cafile="/etc/dlq/web.crt")
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls),
    urllib.request.HTTPCookieProcessor(jar),
)
opener.addheaders = [("Origin", ORIGIN), ("Accept", "application/json")]
if link:
    query = urllib.parse.urlsplit(link).query
    opener.open(link, timeout=60).read()
    opener.open(ORIGIN + "/enter", data=query.encode(), timeout=60).read()
    jar.save(ignore_discard=True)
print(opener.open(ORIGIN + wanted, timeout=60).read().decode())
"""
RECEIVER = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps(json.loads(body)) + "\\n")
        self.send_response(204)
        self.end_headers()
http.server.ThreadingHTTPServer(("", 8088), Handler).serve_forever()
"""


class PageOfHead:
    """The web server on `head`, as ada's browser there meets it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        (site.shared / "browser.py").write_text(BROWSER)

    def configure(self) -> None:
        """What an operator edits: the address, the certificate, and the master's word for it."""
        root = self.site.head.root()
        config = root / "etc/dlq/web.toml"
        config.write_text(config.read_text().replace("https://dlq.example.org", ORIGIN))
        with tempfile.TemporaryDirectory() as made:
            certificate, key = page_certificate(Path(made), "head")
            (root / "etc/dlq/web.crt").write_bytes(certificate.read_bytes())
            (root / "etc/dlq/web.key").write_bytes(key.read_bytes())
        self.site.head.run("chown dlq-web /etc/dlq/web.key; chmod 0400 /etc/dlq/web.key")
        master = root / "etc/dlq/master.toml"
        master.write_text(f'{master.read_text()}\n[identity]\nweb_address = "{ORIGIN}"\n')
        watch(self.site, WEB)
        self.site.head.run(f"systemctl restart {MASTER}")

    def sign_in(self) -> None:
        """By a new link of ada's."""
        link = self.site.head.read("dlq web --link", user="ada")
        assert link.startswith(f"{ORIGIN}/enter?"), link
        self._browse("/livez", link)

    def read(self, path: str) -> str:
        """What the page answers to ada's browser; AssertionError if it refuses."""
        return self._browse(path, "")

    def _browse(self, path: str, link: str) -> str:
        command = f"python3 /shared/browser.py {ORIGIN} {path} '{link}'"
        return self.site.head.read(command, user="ada")


class Notifier:
    """The notifier on `head`, a rule of ada's, and her program that is called."""

    def __init__(self, site: Site) -> None:
        self.site = site
        (site.shared / "receiver.py").write_text(RECEIVER)

    def configure(self) -> None:
        """The one host that may be called, on this network."""
        config = self.site.head.root() / "etc/dlq/notify.toml"
        text = config.read_text().partition("[web]")[0].replace('gather = "15s"', 'gather = "1s"')
        config.write_text(f'{text}[web]\nhosts = ["head:8088"]\nprivate_hosts = ["head"]\n')
        watch(self.site, NOTIFY)
        receive = f"systemd-run --unit=receiver python3 /shared/receiver.py {CALLS}"
        self.site.head.run(receive)

    def end_receiver(self) -> None:
        self.site.head.run("systemctl stop receiver")

    def tells(self, job_id: str) -> dict[str, Any]:
        """Wait for the call about a job's end."""
        try:
            return wait_until(lambda: self._told(job_id), what="the hook is called", timeout_s=90)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.site.story(job_id)}") from None

    def _told(self, job_id: str) -> dict[str, Any]:
        lines = self.site.head.read(f"cat {CALLS} 2>/dev/null || true").splitlines()
        for call in map(json.loads, lines):
            if any(event.get("job_id") == job_id for event in call["events"]):
                return dict(call)
        return {}


def watch(site: Site, unit: str) -> None:
    """The site's own change to a unit: a watchdog that need not be waited for."""
    place = site.head.root() / f"etc/systemd/system/{unit}.d"
    place.mkdir(parents=True, exist_ok=True)
    (place / "site.conf").write_text(WATCHED)
    site.head.run("systemctl daemon-reload")
