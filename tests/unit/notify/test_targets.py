"""The contracts of the targets, against real servers on loopback; and the guard of the site."""

from __future__ import annotations

import base64
import email
import email.policy
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from dlq_common.errors import ConfigError
from dlq_notify.config import MailSection, NotifyConfig, WebSection, check_config
from dlq_notify.letters import Content
from dlq_notify.targets import mail as mail_module
from dlq_notify.targets.chat import Chat
from dlq_notify.targets.guarded import GuardedCaller, is_listed, is_public
from dlq_notify.targets.mail import Mail
from dlq_notify.targets.refusal import NotSent
from dlq_notify.targets.webhook import Webhook
from dlq_notify.wording import JobNotice, notice_of
from support.fake_clock import FakeClock
from support.notify_site import (
    MailReceiver,
    WebReceiver,
    a_content,
    a_letter,
    a_rule,
    mail_receiver,
    told,
    web_receiver,
)
from support.wire_jobs import EPOCH_S, a_job

HOSTILE = "<!channel> *x* [a](http://evil) @all `c` <b>\u202e\x1b[31m\r\nBcc: all@example.org"


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as receiver:
        yield receiver


@pytest.fixture
def mails() -> Iterator[MailReceiver]:
    with mail_receiver() as receiver:
        yield receiver


def found(*addresses: str) -> Any:
    """A resolver that knows every name."""

    def resolve(_host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, 1, 6, "", (address, port)) for address in addresses]

    return resolve


def local_caller(web: WebReceiver, **settings: Any) -> GuardedCaller:
    """One that may call the receiver, which has a private address and no TLS."""
    told = {"hosts": (f"receiver.test:{web.port}",), "private_hosts": ("receiver.test",)} | settings
    return GuardedCaller(WebSection(**told), found("127.0.0.1"))


def hostile_content() -> Content:
    job = a_job(17, "failed", name=HOSTILE, end_reason="user_error")
    notice = notice_of(told(7, "job_failed", job), "failed")
    return a_content(a_letter(notices=[notice]))


# --- webhooks -------------------------------------------------------------------------------------


def test_a_call_is_signed_as_the_page_says(web: WebReceiver) -> None:
    clock, rule = FakeClock(EPOCH_S), a_rule(address=f"{web.url}?x=1")
    Webhook(local_caller(web), clock).send(rule, a_content())
    ((path, headers, body),) = web.calls
    assert path == "/hook?x=1"
    assert headers["Host"] == f"receiver.test:{web.port}"
    assert headers["Dlq-Message-Id"] == "7-n1-1"
    assert headers["Dlq-Timestamp"] == str(int(EPOCH_S))
    signed = headers["Dlq-Timestamp"].encode() + b"." + body
    expected = hmac.new(b"key", signed, hashlib.sha256).hexdigest()
    assert headers["Dlq-Signature"] == f"v1={expected}"
    document = json.loads(body)
    assert (document["version"], document["id"], document["cluster"]) == (1, "7-n1-1", "lab")
    (event,) = document["events"]
    assert (event["sequence"], event["event"], event["job_id"]) == (7, "failed", "17")


@pytest.mark.parametrize(
    ("status", "for_good"), [(500, False), (503, False), (429, False), (404, True), (302, True)]
)
def test_an_answer_that_is_no_success_is_a_fault_and_no_redirect_is_followed(
    web: WebReceiver, status: int, for_good: bool
) -> None:
    web.status, web.headers = status, {"Location": web.url, "Retry-After": "40"}
    with pytest.raises(NotSent) as refused:
        Webhook(local_caller(web), FakeClock()).send(a_rule(address=web.url), a_content())
    assert (refused.value.for_good, refused.value.after_s) == (for_good, 40.0)
    assert len(web.calls) == 1
    assert "receiver.test" not in refused.value.fault


# --- the guard ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",
        "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "fe80::1%eth0", "fd00::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1", "::",
        "2001:db8::1", "nonsense", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1",
        "fec0::1", "2a00:1450::5efe:10.0.0.1", "2a00:1450::200:5efe:10.0.0.1", "3fff::1",
        "5f00::1",
    ],
)  # fmt: skip
def test_no_address_of_the_site_is_called(address: str) -> None:
    assert not is_public(address)
    caller = GuardedCaller(WebSection(hosts=("evil.test",)), found("93.184.215.14", address))
    with pytest.raises(NotSent) as refused:
        caller.post("https://evil.test/", b"", {})
    assert refused.value.for_good


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:220:1::1"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("host", "port", "listed"),
    [
        ("hooks.slack.com", 443, True), ("hooks.slack.com", 8443, False),
        ("evil.test", 443, False), ("x.office.com", 443, True), ("office.com", 443, False),
        ("notoffice.com", 443, False), ("own.test", 8443, True), ("own.test", 443, False),
        ("hooks.slack.com.evil.test", 443, False),
    ],
)  # fmt: skip
def test_hosts_are_those_of_the_list(host: str, port: int, listed: bool) -> None:
    hosts = ("hooks.slack.com", "*.office.com", "own.test:8443")
    assert is_listed(host, port, hosts, secure=True) is listed


def test_the_name_is_looked_up_once_and_the_line_goes_to_what_was_found(web: WebReceiver) -> None:
    """A second look-up could lead elsewhere. Nobody but this resolver knows the name."""
    looks: list[str] = []

    def resolve(host: str, port: int, **_: object) -> list[Any]:
        looks.append(host)
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]

    settings = WebSection(hosts=(f"receiver.test:{web.port}",), private_hosts=("receiver.test",))
    GuardedCaller(settings, resolve).post(web.url, b"{}", {})
    assert (looks, len(web.calls)) == (["receiver.test"], 1)


def test_without_tls_only_hosts_named_private_are_called(web: WebReceiver) -> None:
    caller = local_caller(web, private_hosts=())
    with pytest.raises(NotSent) as refused:
        caller.post(web.url, b"{}", {})
    assert refused.value.for_good
    assert web.calls == []


@contextmanager
def trickling_server() -> Iterator[int]:
    """It accepts, and sends a byte now and then until the caller has gone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = threading.Event()

        def serve() -> None:
            line, _ = server.accept()
            with line:
                while not gone.wait(0.05):
                    try:
                        line.send(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            gone.set()
            thread.join()


def test_an_answer_that_trickles_is_cut_off() -> None:
    with trickling_server() as port:
        settings = WebSection(
            hosts=(f"slow.test:{port}",),
            private_hosts=("slow.test",),
            timeout=0.4,  # type: ignore[arg-type]
        )
        with pytest.raises(NotSent) as refused:
            GuardedCaller(settings, found("127.0.0.1")).post(f"http://slow.test:{port}/", b"", {})
    assert not refused.value.for_good


def test_a_server_with_another_certificate_is_not_told_anything(web: WebReceiver) -> None:
    with pytest.raises(NotSent):
        local_caller(web).post(web.url.replace("http:", "https:"), b"{}", {})
    assert web.calls == []


# --- chats ----------------------------------------------------------------------------------------


def chat_body(web: WebReceiver, target: str) -> tuple[dict[str, Any], str]:
    Chat(local_caller(web)).send(a_rule(target=target, address=web.url), hostile_content())
    text = web.calls[-1][2].decode()
    return json.loads(text), text


def test_slack_gets_plain_text_alone(web: WebReceiver) -> None:
    body, _ = chat_body(web, "slack")
    assert "<" not in body["text"]
    assert body["mrkdwn"] is False
    assert {block["text"]["type"] for block in body["blocks"]} == {"plain_text"}
    assert all(len(block["text"]["text"]) <= 3_000 for block in body["blocks"])


def test_mattermost_gets_one_block_of_code(web: WebReceiver) -> None:
    body, _ = chat_body(web, "mattermost")
    inside = body["text"].removeprefix("```\n").removesuffix("\n```")
    assert "`" not in inside
    assert "@all" in inside, "told, and inert within the block"


def test_teams_gets_runs_of_text_without_markdown(web: WebReceiver) -> None:
    body, _ = chat_body(web, "teams")
    (attachment,) = body["attachments"]
    assert {one["type"] for one in attachment["content"]["body"]} == {"RichTextBlock"}


@pytest.mark.parametrize("target", ["slack", "mattermost", "teams"])
def test_no_chat_gets_a_control_character(web: WebReceiver, target: str) -> None:
    _, text = chat_body(web, target)
    for bad in ("\\u001b", "\\u202e", "\\r"):
        assert bad not in text


# --- mail -----------------------------------------------------------------------------------------


def a_mail(mails: MailReceiver, **settings: Any) -> Mail:
    told: dict[str, Any] = {
        "host": "127.0.0.1", "port": mails.port, "security": "none",
        "sender": "dlq <dlq@example.org>", "domains": ("example.org",),
    }  # fmt: skip
    return Mail(MailSection(**(told | settings)), FakeClock(EPOCH_S))


ADA = a_rule(target="mail", address="ada@example.org")


def test_a_mail_has_one_recipient_one_subject_and_the_id_of_its_message(
    mails: MailReceiver,
) -> None:
    a_mail(mails).send(ADA, hostile_content())
    (text,) = mails.mails
    message = email.message_from_string(text, policy=email.policy.default)
    assert message["To"] == "ada@example.org"
    assert message["Bcc"] is None
    assert message["Message-ID"] == "<dlq.7-n1-1.lab@example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message.get_content_type() == "text/plain"
    assert mails.recipients == ["RCPT TO:<ada@example.org>"] or len(mails.recipients) == 1
    body = message.get_content()
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert "dlq notify remove n1" in body


def test_a_mail_goes_to_the_domains_of_the_site_alone(mails: MailReceiver) -> None:
    with pytest.raises(NotSent) as refused:
        a_mail(mails, domains=("example.com",)).send(ADA, a_content())
    assert refused.value.for_good
    assert mails.recipients == []


@pytest.mark.parametrize(("answer", "for_good"), [("550 no such user", True), ("451 later", False)])
def test_a_mail_server_refuses_for_good_or_for_now(
    mails: MailReceiver, answer: str, for_good: bool
) -> None:
    mails.refuses = answer
    with pytest.raises(NotSent) as refused:
        a_mail(mails).send(ADA, a_content())
    assert refused.value.for_good is for_good


def test_a_mail_server_that_is_away_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotSent) as refused:
        a_mail(MailReceiver(port=port)).send(ADA, a_content())
    assert not refused.value.for_good


def test_a_mail_server_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_module, "LONGEST_S", 0.4)
    with trickling_server() as port, pytest.raises(NotSent) as refused:
        a_mail(MailReceiver(port=port)).send(ADA, a_content())
    assert not refused.value.for_good


def test_without_starttls_no_mail_leaves_where_it_is_demanded(mails: MailReceiver) -> None:
    with pytest.raises(NotSent):
        a_mail(mails, security="starttls").send(ADA, a_content())
    assert mails.mails == []


def test_a_notice_is_one_line() -> None:
    notice = notice_of(told(1, "job_requeued", a_job(17, name=HOSTILE), cause="a\nb"), "requeued")
    assert isinstance(notice, JobNotice)
    assert notice.text.isprintable()


# --- TLS ------------------------------------------------------------------------------------------


def self_signed(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """A certificate of this name, by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "ca.pem").write_bytes(made.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(secret)
    return tmp_path / "ca.pem", tmp_path / "key.pem"


@pytest.mark.parametrize(
    ("name", "trusted", "taken"),
    [("receiver.test", True, True), ("other.test", True, False), ("receiver.test", False, False)],
)
def test_a_call_reaches_the_host_that_it_names_and_no_other(
    tmp_path: Path, name: str, trusted: bool, taken: bool
) -> None:
    """The line goes to an address, and still the certificate has to be that of the name."""
    with web_receiver(self_signed(tmp_path, name)) as web:
        ca_file = tmp_path / "ca.pem" if trusted else None
        caller, url = local_caller(web, ca_file=ca_file), web.url.replace("http:", "https:")
        if taken:
            caller.post(url, b"{}", {})
        else:
            with pytest.raises(NotSent) as refused:
                caller.post(url, b"{}", {})
            assert refused.value.fault == "the server's certificate is not trusted"
        assert len(web.calls) == int(taken)


@pytest.mark.parametrize(("name", "arrives"), [("localhost", True), ("other.test", False)])
def test_a_mail_goes_over_starttls_and_signs_in_only_to_the_right_server(
    tmp_path: Path, name: str, arrives: bool
) -> None:
    certificate = self_signed(tmp_path, name)
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("hush\n")
    with mail_receiver(certificate) as mails:
        mail = a_mail(
            mails, host="localhost", security="starttls", user="dlq", password_file=password,
            ca_file=certificate[0],
        )  # fmt: skip
        if arrives:
            mail.send(ADA, a_content())
        else:
            with pytest.raises(NotSent):
                mail.send(ADA, a_content())
        assert (len(mails.mails), len(mails.signed_in)) == (int(arrives), int(arrives))
    if arrives:
        assert base64.b64decode(mails.signed_in[0]) == b"\0dlq\0hush"


def test_a_password_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    certificate, password = self_signed(tmp_path, "localhost"), tmp_path / "password"
    password.write_text("hush")
    password.chmod(0o644)
    with mail_receiver(certificate) as mails:
        mail = a_mail(
            mails, host="localhost", security="starttls", user="dlq", password_file=password,
            ca_file=certificate[0],
        )  # fmt: skip
        with pytest.raises(NotSent):
            mail.send(ADA, a_content())
        assert mails.signed_in == []


@pytest.mark.parametrize("host", ["127.0.0.1:9911", "[::1]:80", "*.lab.example", "hook:"])
def test_a_private_host_that_could_never_match_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.private_hosts"):
        check_config(NotifyConfig(web=WebSection(private_hosts=(host,))))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "chat.lab.example"])
def test_a_private_host_is_a_name_or_an_address(host: str) -> None:
    check_config(NotifyConfig(web=WebSection(private_hosts=(host,))))
