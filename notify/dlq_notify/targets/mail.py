"""Mails by SMTP, as plain text. A restart may send one twice, with the same Message-ID.

Headers are made by `email.message`, which takes no line breaks. The texts have none either.
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from typing import Any

from dlq_common.clock import Clock
from dlq_common.daemon.config import read_secret
from dlq_common.errors import ConfigError
from dlq_notify.config import MailSection
from dlq_notify.letters import Content
from dlq_notify.rules import Rule
from dlq_notify.targets.refusal import NotSent, refused_by_site, unreachable

TIMEOUT_S = 30.0  # of one step
LONGEST_S = 90.0  # from the connection to the end, whatever trickles in


class Mail:
    """Sends mails by one server."""

    def __init__(self, settings: MailSection, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        ca_file = None if settings.ca_file is None else str(settings.ca_file)
        self._tls = ssl.create_default_context(cafile=ca_file)

    def send(self, rule: Rule, content: Content) -> None:
        """Raises NotSent."""
        settings = self._settings
        if not settings.host:
            raise refused_by_site("no mail server is set (mail.host)")
        domain = rule.address.rpartition("@")[2].lower()
        if domain not in [one.lower() for one in settings.domains]:
            raise refused_by_site("the domain is not in mail.domains")
        message = self.message(rule, content)
        try:
            with self._server() as server:
                server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise _by_code(max(codes, default=500)) from None
        except smtplib.SMTPResponseException as error:
            raise _by_code(error.smtp_code) from None
        except (OSError, smtplib.SMTPException) as error:
            raise unreachable(f"the mail server is away ({type(error).__name__})") from None
        except ConfigError as error:
            raise unreachable(str(error)) from None

    def message(self, rule: Rule, content: Content) -> EmailMessage:
        """The mail. Its id is that of the letter."""
        sender = self._settings.sender
        host = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
        message = EmailMessage()
        message["From"] = sender
        message["To"] = Address(addr_spec=rule.address)
        message["Subject"] = content.subject
        message["Date"] = format_datetime(datetime.fromtimestamp(self._clock.now_s(), UTC))
        message["Message-ID"] = f"<dlq.{content.letter_id}.{_atom(content.cluster)}@{_atom(host)}>"
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no answers by machines
        message["Precedence"] = "bulk"
        message.set_content(content.text)
        return message

    def _server(self) -> smtplib.SMTP:
        """A line to the server, with TLS and signed in where that is set."""
        settings = self._settings
        server: smtplib.SMTP
        if settings.security == "tls":
            server = _BoundedTls(settings.host, settings.port, timeout=TIMEOUT_S, context=self._tls)
        else:
            server = _Bounded(settings.host, settings.port, timeout=TIMEOUT_S)
        try:
            if settings.security == "starttls":
                server.starttls(context=self._tls)
            if settings.password_file is not None:
                server.login(settings.user, read_secret(settings.password_file))
        except BaseException:
            with suppress(OSError):
                server.close()
            raise
        return server


class _Bounded(smtplib.SMTP):
    """A line that ends after a while, however slowly the other side speaks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._over = False
        self._watch = threading.Timer(LONGEST_S, self._cut)
        self._watch.daemon = True
        self._watch.start()
        try:
            super().__init__(*args, **kwargs)
        except BaseException:
            self._watch.cancel()
            raise

    def getreply(self) -> tuple[int, bytes]:
        """As in the base class, but not beyond the end."""
        if self._over:
            raise TimeoutError
        return super().getreply()

    def close(self) -> None:
        self._watch.cancel()
        super().close()

    def _cut(self) -> None:
        self._over = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


class _BoundedTls(_Bounded, smtplib.SMTP_SSL):
    """The same, in TLS from its first byte on."""


def _atom(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", text).strip(".") or "dlq"


def _by_code(code: int) -> NotSent:
    """4xx pass, 5xx stay (RFC 5321). A wrong password is the site's to mend, so it passes."""
    passing = code < 500 or code in (530, 534, 535, 538)
    return NotSent(f"the mail server answered {code}", for_good=not passing)
