"""The configuration of `dlq-notify`: /etc/dlq/notify.toml, and variables such as
DLQ_NOTIFY__STATE_DIR.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dlq_common.daemon.config import Seconds, SecretFile
from dlq_common.errors import ConfigError

SECURITIES = ("starttls", "tls", "none")
_PORT = re.compile(r"^[^:]+:\d*$|\]")  # an address of IPv6 has more colons


@dataclass(frozen=True, slots=True)
class NotifySection:
    """The daemon itself."""

    # Its identity (as `dlq login` makes it), and its database.
    state_dir: Path = Path("/var/lib/dlq-notify")
    # The login broker of the master's host. It gives the first certificate.
    login_socket: Path = Path("/run/dlq/login.sock")
    # Events of a rule go into one message for so long, where the rule itself does not say.
    gather: Seconds = Seconds(15.0)
    # Events of an array go into one message until all its tasks have ended, but not for longer.
    gather_arrays: Seconds = Seconds(3600.0)
    # Messages to a user in an hour; more events wait, and go into fewer messages.
    messages_per_hour: int = 60
    # A message that does not arrive is tried again for so long. Then it is in the list of the dead.
    keep_trying: Seconds = Seconds(86_400.0)
    # Dead messages are kept for so long.
    keep_dead: Seconds = Seconds(30 * 86_400.0)
    # How often the starts of waiting jobs are compared, for rules with `start_moved`.
    look_at_starts: Seconds = Seconds(300.0)


@dataclass(frozen=True, slots=True)
class MailSection:
    """The server that takes mails. Without a host no mail is sent."""

    # Name of the server.
    host: str = ""
    # Its port: 587 for STARTTLS, 465 for TLS.
    port: int = 587
    # "starttls", "tls" (from the first byte on), or "none" for a server on this host.
    security: str = "starttls"
    # Whom the mails are from.
    sender: str = "dlq <dlq@localhost>"
    # Name of the account there; empty: the server wants none.
    user: str = ""
    # A file of mode 0600 with the password of the account.
    password_file: SecretFile | None = None
    # Certificate authorities in place of those of this host.
    ca_file: Path | None = None
    # Domains to which mails may go, such as "example.org". Empty: none.
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebSection:
    """Calls of web addresses."""

    # Hosts that may be called: "hooks.slack.com", "*.webhook.office.com", "hooks.example.org:8443".
    hosts: tuple[str, ...] = ("hooks.slack.com",)
    # Of those, without their port, the ones that may have a private address, or speak plain HTTP.
    private_hosts: tuple[str, ...] = ()
    # A call takes no longer, from the connection to the end of the answer.
    timeout: Seconds = Seconds(20.0)
    # Certificate authorities in place of those of this host.
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class LogSection:
    """The log. No line holds an address."""

    # The least level: debug, info, warning or error.
    level: str = "info"


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """Everything that can be set."""

    notify: NotifySection = field(default_factory=NotifySection)
    mail: MailSection = field(default_factory=MailSection)
    web: WebSection = field(default_factory=WebSection)
    log: LogSection = field(default_factory=LogSection)


def check_config(config: NotifyConfig) -> None:
    """ConfigError for values that make no sense together."""
    mail, notify = config.mail, config.notify
    if mail.security not in SECURITIES:
        raise ConfigError(f"mail.security is one of {', '.join(SECURITIES)}")
    if mail.user and mail.security == "none":
        raise ConfigError("mail.user: a password is sent over TLS only", hint="mail.security")
    if (mail.password_file is not None) != bool(mail.user):
        raise ConfigError("mail.user and mail.password_file belong together")
    for host in config.web.private_hosts:
        if "*" in host or _PORT.search(host):
            raise ConfigError(
                f"web.private_hosts: {host} is no name of one host",
                hint="the name alone, without a port; web.hosts takes ports and *",
            )
    if notify.messages_per_hour < 1:
        raise ConfigError("notify.messages_per_hour is 1 at least")
    if notify.keep_trying <= 0 or config.web.timeout <= 0 or notify.look_at_starts < 10:
        raise ConfigError("notify.keep_trying, web.timeout and notify.look_at_starts are too short")
