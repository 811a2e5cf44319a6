"""How busy the inference side is, from a file, by HTTP and from Prometheus: what tells it, and
every answer that does not.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlq_master.control.loans.load_sources import (
    LARGEST_BYTES,
    LoadUnknown,
    check_source,
    read_load,
)
from support.ports import free_ports

OK = "HTTP/1.1 200 OK\r\n"


@contextmanager
def speaking(said: str, *, hangs: bool = False, heard: list[bytes] | None = None) -> Iterator[str]:
    """A server that says this to whoever calls, and hangs up, or does not; its address."""
    over = threading.Event()

    def serve() -> None:
        line, _ = door.accept()
        with line:
            asked = line.recv(65536)
            if heard is not None:
                heard.append(asked)
            line.sendall(said.encode())
            if hangs:
                over.wait()

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        over.set()
        thread.join()


def with_length(body: str) -> str:
    return f"{OK}Content-Length: {len(body)}\r\n\r\n{body}"


def found(result: str, kind: str = "vector") -> str:
    """What Prometheus answers to a query."""
    return f'{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}'


SERIES = '{"metric":{},"value":[1700000000,"%s"]}'


def test_a_load_is_the_last_cell_of_the_last_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time_s,busy\n0,0.9\n60,0.25\n\n")
    assert read_load(str(path)) == 0.25
    for scheme in ("file:", "file://"):
        check_source(f"{scheme}{path}")
        assert read_load(f"{scheme}{path}") == 0.25


def test_a_file_that_nobody_writes_any_more_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "load"
    path.write_text("0.5\n")
    assert read_load(str(path), max_age_s=3600.0) == 0.5
    os.utime(path, (1.0, 1.0))
    assert read_load(str(path)) == 0.5, "without a limit"
    with pytest.raises(LoadUnknown, match="nobody has written it for"):
        read_load(str(path), max_age_s=3600.0)


@pytest.mark.parametrize(("body", "busy"), [("0.75\n", 0.75), ('{"busy": 0.5}', 0.5), ("1", 1.0)])
def test_a_load_is_what_a_server_answers(body: str, busy: float) -> None:
    with speaking(with_length(body)) as url:
        assert read_load(f"{url}/load") == busy
    with speaking(f"{OK}\r\n{body}") as url:
        assert read_load(url) == busy, "who tells no length hangs up"


@pytest.mark.parametrize(
    ("result", "kind"), [(f"[{SERIES % 0.4}]", "vector"), ('[1700000000,"0.4"]', "scalar")]
)
def test_a_load_is_what_a_query_of_prometheus_finds(result: str, kind: str) -> None:
    with speaking(with_length(found(result, kind))) as url:
        assert read_load(f"prometheus:{url}?query=avg(busy{{job='x'}})") == 0.4


@pytest.mark.parametrize("query", ["a/(a+b)", "a/(a%2Bb)"])
def test_a_query_is_asked_as_people_write_it(query: str) -> None:
    heard: list[bytes] = []
    with speaking(with_length(found(f"[{SERIES % 0.4}]")), heard=heard) as url:
        read_load(f"prometheus:{url}?query={query}")
    assert heard[0].startswith(b"GET /api/v1/query?query=a/%28a%2Bb%29 ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("busy\n", "'busy' is no number"),
        ("1.5\n", "1.5 is no share from 0 to 1"),
        ("-0.1\n", "-0.1 is no share"),
        ("nan\n", "nan is no share"),
        ("0.3,\n", "'' is no number"),
        ("{}", 'its JSON has no "busy"'),
        ('{"busy": null}', "'None' is no number"),
        ('{"busy": true}', "'True' is no number"),
        ('{"busy": ', "Expecting value"),
        ('{"a":' * 10_000, "recursion|Expecting value"),  # Python 3.14 reads as deep as it goes
    ],
)
def test_what_is_no_load_is_told(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "load"
    path.write_text(text)
    with pytest.raises(LoadUnknown, match=why):
        read_load(str(path))


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(LoadUnknown, match="No such file"):
        read_load(str(tmp_path / "gone"))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(LoadUnknown, match="it is no file"):
            read_load(str(path))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n0.1", "404: Not Found"),
        ("hello there\r\n\r\n", "hello there"),
        ("", "without response"),
        (f"{OK}Content-Length: 4\r\n\r\n0.", "its answer was cut off"),
        (f"{OK}Transfer-Encoding: chunked\r\n\r\n4\r\n0.", "IncompleteRead"),
        (with_length("0" * (LARGEST_BYTES + 1)), "it answers more than"),
        (with_length("busy"), "'busy' is no number"),
    ],
)
def test_a_server_that_answers_anything_else_is_told(said: str, why: str) -> None:
    with speaking(said) as url, pytest.raises(LoadUnknown, match=why):
        read_load(url)


@pytest.mark.parametrize("said", ["", OK, f"{OK}Content-Length: 4\r\n\r\n0."])
def test_a_server_that_hangs_is_told(said: str) -> None:
    with speaking(said, hangs=True) as url, pytest.raises(LoadUnknown, match="timed out"):
        read_load(url, timeout_s=0.05)


def test_nobody_who_answers_is_told() -> None:
    (port,) = free_ports(1)
    with pytest.raises(LoadUnknown, match="refused"):
        read_load(f"http://127.0.0.1:{port}/load")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (found("[]"), "the query finds nothing"),
        (found(f"[{SERIES % 0.1},{SERIES % 0.9}]"), "the query finds 2 series, not one"),
        (found(f"[{SERIES % 'NaN'}]"), "nan is no share"),
        (found(f"[{SERIES % '+Inf'}]"), "inf is no share"),
        ('{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
        ("[]", "no answer of Prometheus"),
        ("0.3", "no answer of Prometheus"),
        ("<html>", "Expecting value"),
    ],
)
def test_a_query_that_finds_no_number_is_told(body: str, why: str) -> None:
    with speaking(with_length(body)) as url, pytest.raises(LoadUnknown, match=why):
        read_load(f"prometheus:{url}?query=busy")


@pytest.mark.parametrize(
    "source", ["ftp://h/x", "run/load", "prometheus:http://h:9090", "prometheus:h?query=x"]
)
def test_what_cannot_be_asked_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="not"):
        check_source(source)
    check_source("")
