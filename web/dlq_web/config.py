"""The configuration of `dlq-web`: web.toml, and the checks that a wrong one fails with words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from dlq_common.daemon.config import load_config
from dlq_common.errors import ConfigError
from dlq_common.text.addresses import is_loopback

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class PageConfig:
    """The address of the page, as browsers see it."""

    # "https://dlq.example.org" or "https://dlq.example.org:8443". Requests for another name, and
    # changes from pages of another origin, are refused.
    origin: str = ""


@dataclass(frozen=True, slots=True)
class WebListenConfig:
    """The place where it listens. A socket of systemd named `web` takes the place of `address`."""

    # "0.0.0.0:443", or "unix:/run/dlq-web/web.sock" for a reverse proxy of the same host
    address: str = "127.0.0.1:7330"
    certificate: str = ""  # PEM, with its chain; without one: loopback or a unix socket only
    key: str = ""  # PEM, mode 0600
    # Ask browsers for certificates of the cluster, as a way to sign in; needs `certificate`.
    client_certificates: bool = True


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The service's own identity towards the master, with the role "web"."""

    state_dir: Path = Path("/var/lib/dlq-web")  # its identity, and the tokens of programs
    login_socket: Path = Path("/run/dlq/login.sock")  # of the master's host, for the first identity


@dataclass(frozen=True, slots=True)
class WallConfig:
    """A screen on the wall: the map of all GPUs without names, for its token alone."""

    # The user as whom the map is asked for, one that the service may act for. "": there is no wall.
    # `dlq-web wall` prints the address.
    user: str = ""


@dataclass(frozen=True, slots=True)
class WebLogConfig:
    """Lines below the level are not written."""

    level: str = "info"  # "debug", "info", "warning" or "error"


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole of web.toml."""

    page: PageConfig = field(default_factory=PageConfig)
    listen: WebListenConfig = field(default_factory=WebListenConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)
    wall: WallConfig = field(default_factory=WallConfig)
    log: WebLogConfig = field(default_factory=WebLogConfig)

    @property
    def behind_proxy(self) -> bool:
        """Whether only a reverse proxy of this host can connect."""
        return self.listen.address.startswith(UNIX)


def read_config(path: Path) -> WebConfig:
    """The checked configuration. ConfigError says what is wrong, and what helps."""
    config = load_config(WebConfig, path)
    for problem in (_origin_problem(config), _listen_problem(config)):
        if problem:
            raise ConfigError(f"{path}: {problem}", source=path)
    return config


def _origin_problem(config: WebConfig) -> str:
    address = urlsplit(config.page.origin)
    plain = f"{address.scheme}://{address.netloc}"
    if not address.netloc or plain != config.page.origin or "@" in address.netloc:
        return 'page.origin is the address of the page, such as "https://dlq.example.org"'
    if address.netloc != address.netloc.lower():
        return "page.origin is written in lower case, as browsers send it"
    if address.scheme == "https":
        return ""
    if address.scheme == "http" and (address.hostname or "") in ("localhost", "127.0.0.1", "::1"):
        return ""
    return "page.origin begins with https://; http:// is for loopback only"


def _listen_problem(config: WebConfig) -> str:
    listen = config.listen
    if bool(listen.certificate) != bool(listen.key):
        return "listen.certificate and listen.key belong together"
    if config.behind_proxy:
        if listen.certificate:
            return "listen.certificate: a unix socket is for a reverse proxy, which ends TLS itself"
        return ""
    try:
        loopback = is_loopback(listen.address)
    except ValueError:
        return f'listen.address {listen.address!r} is not HOST:PORT or "unix:PATH"'
    if not listen.certificate and not loopback:
        return (
            "listen.address can be reached from other hosts, so listen.certificate and listen.key "
            "are needed; or listen on a unix socket behind a reverse proxy"
        )
    if listen.certificate and not config.page.origin.startswith("https://"):
        return "page.origin begins with https:// where listen.certificate is given"
    return ""
