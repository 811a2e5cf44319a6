"""What `dlq-notify` needs around it in tests: events, rules, and servers that take messages."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dlq.v1 import job_pb2, job_service_pb2
from dlq_common.text.wire import to_timestamp
from dlq_notify.letters import Content, content_of
from dlq_notify.rules import Rule, RuleBook
from dlq_notify.store import NotifyLetter, NotifyStore
from dlq_notify.wording import JobNotice
from support.wire_jobs import EPOCH_S, a_job

Told = job_service_pb2.WatchEventsResponse


def a_rule(rule_id: str = "n1", **changes: Any) -> Rule:
    """A rule of alice, as old as time."""
    rule = Rule(
        rule_id, "alice", "webhook", "https://hooks.example.org/secret", ("ended", "failed"),
        0.0, 0.0, "key",
    )  # fmt: skip
    return rule._replace(**changes)


def a_book(*rules: Rule) -> RuleBook:
    """These rules, or the one above."""
    return RuleBook(rules or (a_rule(),), read_s=0.0)


def told(sequence: int, kind: str, job: job_pb2.Job | None = None, **fields: Any) -> Told:
    """An event about a job, or about none."""
    message = Told(cursor=sequence)
    message.event.sequence = sequence
    message.event.kind = kind
    message.event.event_time.CopyFrom(to_timestamp(EPOCH_S + sequence))
    message.event.data.update(fields.pop("data", {}))
    if job is not None:
        message.event.job_id = job.job_id
        message.job.CopyFrom(job)
    for name, value in fields.items():
        setattr(message.event, name, value)
    return message


def a_task(job_id: int, index: int, tasks: int, state: str = "completed") -> job_pb2.Job:
    """A task of array 100."""
    task = job_pb2.ArrayTask(array_id="100", index=index, task_count=tasks)
    return a_job(job_id, state, array_task=task, name="sweep")


def a_letter(letter_id: str = "7-n1-1", **changes: Any) -> NotifyLetter:
    """A letter about one job."""
    notice = JobNotice(7, "failed", "job_failed", EPOCH_S, "job 17 (train) has failed: oom", "17")
    letter = NotifyLetter(letter_id, "n1", "alice", EPOCH_S, EPOCH_S, {"job_failed": 1}, [notice])
    return letter._replace(**changes)


def due_letters(store: NotifyStore, at_s: float) -> list[NotifyLetter]:
    """All letters to be sent by then, the oldest first."""
    due = [one for rule in store.due_rules(at_s) for one in store.due_letters(rule, at_s, 1_000)]
    return sorted(due, key=lambda letter: letter.made_s)


def a_content(letter: NotifyLetter | None = None) -> Content:
    """Its content."""
    return content_of(letter or a_letter(), "lab")


@contextmanager
def a_store(tmp_path: Path) -> Iterator[NotifyStore]:
    """The database below a directory: the same one in each call."""
    store = NotifyStore(tmp_path / "notify.db")
    try:
        yield store
    finally:
        store.close()


@dataclass
class WebReceiver:
    """A web server that keeps what it gets, and answers as it is told."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://receiver.test:{self.port}/hook"


@contextmanager
def web_receiver(tls: tuple[Path, Path] | None = None) -> Iterator[WebReceiver]:
    """It listens on loopback. `tls`: its certificate and key."""
    receiver = WebReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.calls.append((self.path, dict(self.headers.items()), body))
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a caller that trusts us not

    with Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@dataclass
class MailReceiver:
    """A mail server that keeps what it gets. `refuses`: its answer to a recipient."""

    refuses: str = ""
    signed_in: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    port: int = 0


class _QuietServer(socketserver.ThreadingTCPServer):
    def handle_error(self, *_: object) -> None:
        pass  # a caller that trusts us not


class _MailHandler(socketserver.StreamRequestHandler):
    receiver: MailReceiver
    tls: tuple[Path, Path] | None = None
    encrypted: ssl.SSLSocket | None = None

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            word = line.split()[0].upper()
            if word == "QUIT":
                self._say("221 bye")
                return
            answer = getattr(self, f"_{word.lower()}", None)
            self._say("250 ok" if answer is None else answer(line))

    def finish(self) -> None:
        super().finish()
        if self.encrypted is not None:
            self.encrypted.close()

    def _ehlo(self, _line: str) -> str:
        return "250 ok" if self.tls is None else "250-test\r\n250-STARTTLS\r\n250 AUTH PLAIN"

    def _starttls(self, _line: str) -> str:
        if self.tls is None:
            return "502 no"
        self._say("220 go on")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.tls)
        self.encrypted = line = context.wrap_socket(self.connection, server_side=True)
        self.rfile = line.makefile("rb")
        self.rfile.readline()  # the client greets anew
        return "250-test\r\n250 AUTH PLAIN"

    def _auth(self, line: str) -> str:
        self.receiver.signed_in.append(line.split()[-1])
        return "235 ok"

    def _rcpt(self, line: str) -> str:
        self.receiver.recipients.append(line)
        return self.receiver.refuses or "250 ok"

    def _data(self, _line: str) -> str:
        self._say("354 go on")
        lines: list[str] = []
        while (line := self.rfile.readline().decode()) != ".\r\n":
            lines.append(line)
        self.receiver.mails.append("".join(lines))
        return "250 taken"

    def _say(self, text: str) -> None:
        content = f"{text}\r\n".encode()
        if self.encrypted is not None:
            self.encrypted.sendall(content)
        else:
            self.wfile.write(content)


@contextmanager
def mail_receiver(tls: tuple[Path, Path] | None = None) -> Iterator[MailReceiver]:
    """As much of SMTP as a client needs. `tls`: certificate and key for STARTTLS."""
    receiver = MailReceiver()
    handler = type("Handler", (_MailHandler,), {"receiver": receiver, "tls": tls})
    with _QuietServer(("127.0.0.1", 0), handler) as server:
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
