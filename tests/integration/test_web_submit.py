"""A job submitted from a form: errors name their field and line, and a repeat queues nothing."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import Unavailable, Unsatisfiable
from dlq_master.control import stimuli as say
from dlq_master.model.ids import JobId
from dlq_web.door.guard import CSRF_HEADER
from dlq_web.pages.steer import submitting
from dlq_web.pages.steer.pasted import LONGEST_WORDS, Pasted, understand
from support.rpc_house import RpcHouse, rpc_house
from support.web_house import WebHouse, web_house

pytestmark = pytest.mark.integration
HTML = {"accept": "text/html"}
SCRIPT = "#!/bin/sh\n#DLQ --gpus=2 -t 1:00:00\necho hello\n"
TOML = 'command = ["python3", "train.py"]\nworkdir = "/data"\n[resources]\ngpus = 4\n'


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
async def web(house: RpcHouse) -> AsyncIterator[WebHouse]:
    async with web_house(house) as web:
        await web.enter()
        yield web


async def opened(web: WebHouse) -> tuple[str, dict[str, str]]:
    """The key of a fresh form, and the token of the session."""
    text = (await web.browser.get("/submit", headers=HTML)).text
    csrf, key = re.search(r'"csrf" content="([^"]+)"', text), re.search(r'data-key="([^"]+)', text)
    assert csrf is not None
    assert key is not None
    return key[1], {CSRF_HEADER: csrf[1]}


async def send(web: WebHouse, path: str, key: str = "", **body: Any) -> tuple[int, Any]:
    own, headers = await opened(web)
    told = {"key": key or own, "directory": "/home/alice", **body}
    answer = await web.browser.post(path, json=told, headers=headers)
    return answer.status_code, answer.json()


def specs(house: RpcHouse) -> list[JobSpec]:
    return [JobSpec.FromString(one) for one in house.control.published.specs.values()]


async def test_a_command_s_words_are_a_job(house: RpcHouse, web: WebHouse) -> None:
    words = "dlq submit -G 4 -t 2h --name big -- python3 train.py --lr '0.1 x'"
    status, told = await send(web, "/submit", words=words)
    assert (status, told["told"], told["page"]) == (200, "Submitted batch job 1", "/jobs/1")
    (spec,) = specs(house)
    assert list(spec.command) == ["python3", "train.py", "--lr", "0.1 x"]
    assert (spec.name, spec.resources.gpu_count) == ("big", 4)
    assert (spec.working_directory, spec.time_limit_duration.seconds) == ("/home/alice", 7200)
    assert not spec.environment


async def test_a_script_with_flags_over_its_lines(house: RpcHouse, web: WebHouse) -> None:
    status, _ = await send(web, "/submit", content=SCRIPT, name="script", words="-t 5m -- a b")
    (spec,) = specs(house)
    assert (status, spec.script, list(spec.command)) == (200, SCRIPT, ["a", "b"])
    assert (spec.resources.gpu_count, spec.time_limit_duration.seconds) == (2, 300)


async def test_a_spec_file_is_a_job(house: RpcHouse, web: WebHouse) -> None:
    status, _ = await send(web, "/submit", content=TOML, name="job.toml", directory="")
    (spec,) = specs(house)
    assert (status, spec.working_directory, spec.resources.gpu_count) == (200, "/data", 4)


async def test_a_form_that_is_being_filled_in_stays(web: WebHouse) -> None:
    text = (await web.browser.get("/submit", headers=HTML)).text
    assert '<form id="submit" class="tall" data-still' in text, "or a renewal takes the text away"


async def test_a_second_press_of_the_same_form_queues_nothing(
    house: RpcHouse, web: WebHouse
) -> None:
    key, _ = await opened(web)
    words = "--begin now+2hours -- true"
    first = await send(web, "/submit", key, words=words)
    again = await send(web, "/submit", key, words=words)
    assert first == again
    assert list(house.control.published.all_jobs) == [JobId(1)]
    asks = [one for one in house.control.asked if isinstance(one, say.SubmitJob)]
    assert len({(one.request_id, one.spec) for one in asks}) == 1
    status, _ = await send(web, "/submit", key, words="-- false")
    assert (status, len(house.control.published.all_jobs)) == (200, 2)


async def test_a_check_queues_nothing_and_says_what_it_means(
    house: RpcHouse, web: WebHouse
) -> None:
    status, told = await send(web, "/submit/check", content=TOML, name="job.toml")
    assert status == 200
    assert "gpus:" in told["understood"]
    assert "(job.toml:4)" in told["understood"]
    assert "no forecast: the twin was killed" in told["estimate"]
    assert len(told["reasons"]) == 1
    assert not house.control.published.all_jobs


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"content": "#!/bin/sh\n#DLQ --gpus=x\n", "name": "script"}, "script:2", "gpus"),
        ({"content": TOML + "gpuz = 1\n", "name": "job.toml"}, "job.toml:5", "unknown key"),
        ({"content": "a: b: c", "name": "job.yaml"}, "job.yaml:1", "not YAML"),
        ({"words": "--gpus x -- true"}, "--gpus", "x"),
        ({"words": "train.sh"}, "the flags", "train.sh"),
        ({"words": "-- 'true"}, "the flags", "quotes"),
        ({"words": ""}, "the form", "nothing to submit"),
        ({"words": "-- true", "directory": ""}, "directory", "the job has none"),
        ({"words": "-- true", "directory": "src"}, "directory", "begin with /"),
        ({"words": "--env HOME -- true"}, "--env", "HOME"),
        ({"content": TOML, "name": "job.toml", "words": "-- a"}, "the flags", "no arguments"),
    ],
)
async def test_an_error_names_its_place_and_nothing_is_queued(
    house: RpcHouse, web: WebHouse, body: dict[str, Any], field: str, words: str
) -> None:
    for path in ("/submit/check", "/submit"):
        status, told = await send(web, path, **body)
        assert (status, told["problems"][0]["field"]) == (400, field)
        assert words in told["message"]
    assert not house.control.published.all_jobs


async def test_every_mistake_is_told_at_once(web: WebHouse) -> None:
    content = "#!/bin/sh\n#DLQ --gpus=x\n#DLQ --nodes=y\n"
    _, told = await send(web, "/submit/check", content=content, name="script", words="-t z")
    places = [one["field"] for one in told["problems"]]
    assert places == ["--time", "script:2", "script:3"]


async def test_the_master_s_refusal_is_told_as_it_is(house: RpcHouse, web: WebHouse) -> None:
    def refuse(_ask: object) -> object:
        raise Unsatisfiable("no node has 64 GPUs", hint="the largest has 8")

    house.control.answers[say.SubmitJob] = refuse
    status, told = await send(web, "/submit", words="-G 64 -- true")
    assert (status, told["reason"]) == (400, "UNSATISFIABLE")
    assert told["problems"] == [
        {"message": "no node has 64 GPUs", "hint": "the largest has 8", "field": ""}
    ]


async def test_a_master_away_says_that_a_second_press_is_safe(
    house: RpcHouse, web: WebHouse
) -> None:
    key, headers = await opened(web)
    house.control.failure = Unavailable("the master is going")
    body = {"words": "-- true", "directory": "/x", "key": key}
    answer = await web.browser.post("/submit", json=body, headers=headers)
    assert answer.status_code == 503
    assert "queued once" in answer.json()["hint"]


def test_nothing_of_this_host_enters_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the server")
    found = understand(Pasted("", "script", "--export ALL -- true", "/home/alice"))
    assert found.spec is not None
    assert dict(found.spec.environment) == {}
    assert "umask" not in found.spec.origins


async def test_another_zone_moves_a_time_without_an_offset(house: RpcHouse, web: WebHouse) -> None:
    words = "--begin 2031-06-01T12:00 -- true"
    for zone in ("Asia/Tokyo", "America/New_York", "../../etc/passwd", ""):
        status, _ = await send(web, "/submit", words=words, zone=zone)
        assert status == 200
    hours = [spec.begin_time.ToDatetime().hour for spec in specs(house)]
    assert hours == [3, 16, 12, 12]


async def test_a_long_text_of_one_person_holds_up_nobody(
    web: WebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(pasted: Pasted) -> Any:
        begun.set()
        assert go_on.wait(30.0)
        return understand(pasted)

    monkeypatch.setattr(submitting, "understand", slow)
    first = asyncio.create_task(send(web, "/submit", words="-- true"))
    assert await asyncio.to_thread(begun.wait, 30.0)
    assert (await web.browser.get("/livez")).status_code == 200
    status, told = await send(web, "/submit", words="-- true")
    assert (status, told["message"]) == (429, "your last text is being read still")
    go_on.set()
    assert (await first)[0] == 200
    assert (await send(web, "/submit", words="-- true"))[0] == 200


def test_words_that_would_last_for_long_are_refused() -> None:
    words = f"'{'x' * LONGEST_WORDS}'"
    (problem,) = understand(Pasted("", "script", words, "/tmp")).problems
    assert "longer than 65536 characters" in problem.what
