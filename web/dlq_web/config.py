"""The configuration of `dlq-web`: web.toml, and the checks that a wrong one fails with words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from dlq_common.daemon.config import Seconds, load_config
from dlq_common.errors import ConfigError
from dlq_common.identity.acting import MOST_GROUPS, is_group
from dlq_common.text.addresses import is_loopback

UNIX = "unix:"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LARGEST_SKEW_S = 300.0
LEAST_RECHECK_S, LONGEST_RECHECK_S = 10.0, 43_200.0


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
class OpenIdConfig:
    """Signing in by an issuer of OpenID Connect (docs/running/sign-in.md)."""

    issuer: str = ""  # "https://sso.example.org/realms/lab", exactly as it calls itself; "": none
    client_id: str = ""  # the issuer's name for this server
    client_secret_file: str = ""  # one line, mode 0600; "": a public client
    scopes: tuple[str, ...] = ("openid", "profile")  # asked for at the issuer
    user_claim: str = "preferred_username"  # the claim that names the user
    # The whole claim must fit, and group 1 is the user: "([a-z0-9]+)@example\\.org". "": all of it.
    user_pattern: str = ""
    groups_claim: str = "groups"  # a list of texts, for the three rules below
    user_groups: tuple[str, ...] = ()  # may sign in as users; none: everybody of the issuer
    operator_groups: tuple[str, ...] = ()  # may sign in as operators; none: nobody does
    admin_groups: tuple[str, ...] = ()  # may sign in as admins; none: nobody does
    # The master hears of these, and decides what they give ([identity] group_roles, group_teams).
    told_groups: tuple[str, ...] = ()
    # So often the issuer is asked whether it still stands by each session, where it has given a
    # refresh token; "0s": never, else at least 10 s.
    recheck: Seconds = Seconds(300.0)
    clock_skew: Seconds = Seconds(60.0)  # between the issuer's host and this one; at most 5 min
    ca_file: str = ""  # PEM, for an issuer with a certificate of the site's own CA
    button: str = "Sign in with your organisation"  # the words of the button


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
    openid: OpenIdConfig = field(default_factory=OpenIdConfig)
    log: WebLogConfig = field(default_factory=WebLogConfig)

    @property
    def behind_proxy(self) -> bool:
        """Whether only a reverse proxy of this host can connect."""
        return self.listen.address.startswith(UNIX)


def read_config(path: Path) -> WebConfig:
    """The checked configuration. ConfigError says what is wrong, and what helps."""
    config = load_config(WebConfig, path)
    for problem in (
        _origin_problem(config),
        _listen_problem(config),
        _openid_problem(config.openid),
    ):
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
    if _is_here(config.page.origin):
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


def _openid_problem(openid: OpenIdConfig) -> str:
    if not openid.issuer:
        return ""
    if urlsplit(openid.issuer).scheme != "https" and not _is_here(openid.issuer):
        return "openid.issuer begins with https://"
    if not openid.client_id:
        return "openid.client_id is missing: the issuer gives it to this server"
    if "openid" not in openid.scopes:
        return 'openid.scopes holds "openid"'
    if not 0 <= openid.clock_skew <= LARGEST_SKEW_S:
        return "openid.clock_skew is from 0s to 5m"
    if openid.recheck and not LEAST_RECHECK_S <= openid.recheck <= LONGEST_RECHECK_S:
        return "openid.recheck is from 10s to 12h, or 0s"
    if len(openid.told_groups) > MOST_GROUPS or not all(map(is_group, openid.told_groups)):
        return f"openid.told_groups has up to {MOST_GROUPS} names of groups"
    try:
        groups = re.compile(openid.user_pattern).groups
    except re.error as error:
        return f"openid.user_pattern is no pattern: {error}"
    if openid.user_pattern and groups != 1:
        return "openid.user_pattern has one pair of parentheses around the user"
    return ""


def _is_here(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "http" and parts.hostname in LOOPBACK
