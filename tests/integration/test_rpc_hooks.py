"""Submissions through the operator's hook, over a real line: what it may change, what its failure
means, and that a repeat has the first answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.hook_words import hook_words
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId
from dlq_master.rpc.specs.hooked import SubmitHooks
from dlq_master.rpc.specs.intake import job_stimulus
from support.hook_files import SOURCE, a_desk
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house

pytestmark = pytest.mark.integration


class HookedHouse:
    """A door with a hook, and alice who submits."""

    def __init__(self, house: RpcHouse, known: set[tuple[str, str]]) -> None:
        self.house, self.known = house, known
        self.alice: Any = JobServiceStub(house.channel_as("alice", Role.USER))
        self.desk: Any = None

    async def submit(self, name: str, request_id: str = "r", **more: Any) -> Any:
        request = wire.SubmitJobRequest(request_id=request_id, spec=a_spec(name), **more)
        return await self.alice.SubmitJob(request, timeout=DEADLINE_S)

    async def refused(self, name: str) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.submit(name)
        return caught.value

    def spec(self, job_id: str) -> job_pb2.JobSpec:
        return job_pb2.JobSpec.FromString(self.house.control.published.specs[JobId(int(job_id))])


def a_spec(name: str) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(name=name, command=["/bin/true"], environment={"HOME": "/home/alice"})
    spec.resources.gpu_count = 1
    return spec


@asynccontextmanager
async def hooked_house(tmp_path: Path, **settings: Any) -> AsyncIterator[HookedHouse]:
    known: set[tuple[str, str]] = set()
    desk = a_desk(known=known, **settings)
    async with rpc_house(tmp_path, hooks=SubmitHooks(desk)) as house:
        hooked = HookedHouse(house, known)
        hooked.desk = desk
        yield hooked
    await desk.close()


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[HookedHouse]:
    async with hooked_house(tmp_path) as house:
        yield house


async def test_changes_are_in_the_job_and_told_everywhere(hooked: HookedHouse) -> None:
    answer = await hooked.submit("change")
    words = [hook_words(note) for note in answer.hook_notes]
    assert words == [
        "on_submit changed time limit from none to 1h",
        "on_submit changed nice from 0 to 10",
        "on_submit changed label project from none to alice",
        "on_submit changed variable SITE from unset to set",
        "on_submit: your job is short now",
    ]
    spec = hooked.spec(answer.job.job_id)
    assert spec.time_limit_duration.seconds == 3600
    assert dict(spec.environment) == {"HOME": "/home/alice", "SITE": "lab"}
    assert spec.nice == 10
    shown = await hooked.alice.GetJob(wire.GetJobRequest(job_id="1"), timeout=DEADLINE_S)
    assert list(shown.spec.hook_notes) == list(answer.hook_notes)
    hooked.house.audit.close()
    lines = [json.loads(line) for line in hooked.house.audit_path.read_text().splitlines()]
    (line,) = [one for one in lines if one["method"].endswith("/SubmitJob")]
    assert line["hook"] == "; ".join(words)


async def test_a_repeat_has_the_first_answer_and_runs_no_hook(hooked: HookedHouse) -> None:
    first = await hooked.submit("counted", brief=True)
    hooked.known.add(("alice", "r"))  # the store has it now
    again = await hooked.submit("counted", brief=True)
    assert again == first
    assert hook_words(first.hook_notes[0]).endswith("label calls from none to 1")
    assert hooked.desk.calls["on_submit", "ok"] == 1


async def test_a_dry_run_shows_the_same_and_accepts_nothing(hooked: HookedHouse) -> None:
    answer = await hooked.submit("change", request_id="", validate_only=True)
    assert len(answer.hook_notes) == 5
    assert not hooked.house.control.published.all_jobs


async def test_a_refusal_is_told_with_its_reason(hooked: HookedHouse) -> None:
    error = await hooked.refused("refuse")
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert error.details() == "hook on_submit refuses this job: alice has no project"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("throw", "ValueError: no such project"),
        ("forbidden", "it changed gpus, which no hook may change"),
        ("steal", "it changed the variable HOME of the user"),
        ("bad", "it made a job that is refused"),
        ("half", "it set labels to what no job can have"),
        ("odd", "it returned a dict"),
    ],
)
async def test_a_failure_refuses_in_words(hooked: HookedHouse, name: str, words: str) -> None:
    error = await hooked.refused(name)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "hook on_submit failed, and without it no job is accepted" in (error.details() or "")
    assert words in (error.details() or "")
    assert not hooked.house.control.published.all_jobs


async def test_a_process_that_dies_may_be_tried_again(hooked: HookedHouse) -> None:
    error = await hooked.refused("die")
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await hooked.submit("fine")


@pytest.mark.parametrize("name", ["throw", "forbidden", "die", "half"])
async def test_an_open_hook_lets_the_job_pass_as_it_is(tmp_path: Path, name: str) -> None:
    async with hooked_house(tmp_path, policy="open") as hooked:
        answer = await hooked.submit(name)
        (note,) = answer.hook_notes
        assert note.text.startswith("hook on_submit failed: ")
        assert note.text.endswith("the job was accepted as it was sent")
        kept = hooked.spec(answer.job.job_id)
        assert dict(kept.environment) == {"HOME": "/home/alice"}
        assert not kept.labels


async def test_a_crowd_of_ones_own_passes_no_open_hook(tmp_path: Path) -> None:
    async with hooked_house(tmp_path, policy="open", waiting_per_user=1) as hooked:
        tries = (hooked.submit("change", f"r{at}") for at in range(2))
        found: list[Any] = await asyncio.gather(*tries, return_exceptions=True)
        (refused,) = [one for one in found if isinstance(one, grpc.aio.AioRpcError)]
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        told = "hook on_submit has not seen this job: 1 submissions of alice wait for it already"
        assert refused.details() == f"{told}, 1 at most"


async def test_many_jobs_of_one_call_are_each_seen(hooked: HookedHouse) -> None:
    specs = [a_spec(name) for name in ("change", "refuse", "fine")]
    request = wire.SubmitJobsRequest(request_id="many", specs=specs)
    jobs = (await hooked.alice.SubmitJobs(request, timeout=DEADLINE_S)).jobs
    assert [len(one.hook_notes) for one in jobs] == [5, 0, 0]
    assert jobs[1].refusal.reason == "PERMISSION_DENIED"
    assert jobs[2].job_id


async def test_an_array_calls_its_hook_once(hooked: HookedHouse) -> None:
    spec = a_spec("counted")
    spec.array.ranges.add(first=0, last=9)
    request = wire.SubmitJobRequest(request_id="array", spec=spec)
    await hooked.alice.SubmitJob(request, timeout=DEADLINE_S)
    assert hooked.desk.calls["on_submit", "ok"] == 1


def a_group(*names: str, count: int = 1, **more: Any) -> wire.SubmitJobsRequest:
    members = [wire.GroupMember(name=f"m{at}", job_count=count) for at in range(len(names))]
    specs = [a_spec(name) for name in names]
    return wire.SubmitJobsRequest(members=members, specs=specs, **more)


async def test_a_hook_sees_how_many_jobs_a_member_of_a_group_is(hooked: HookedHouse) -> None:
    request = a_group("tell", "tell", request_id="g")
    request.members[0].job_count = 3
    answer = await hooked.alice.SubmitJobs(request, timeout=DEADLINE_S)
    notes = [[note.text for note in job.hook_notes] for job in answer.jobs]
    assert notes == [["3 tasks, for real"], [], [], ["1 tasks, for real"]]


async def test_a_group_on_trial_tells_its_hook_so(hooked: HookedHouse) -> None:
    request = a_group("tell", "fine", request_id="g", validate_only=True)
    answer = await hooked.alice.SubmitJobs(request, timeout=DEADLINE_S)
    assert [note.text for note in answer.jobs[0].hook_notes] == ["1 tasks, on trial"]


async def test_the_answer_to_a_dry_run_serves_no_submission(hooked: HookedHouse) -> None:
    hooks, caller, told = SubmitHooks(hooked.desk), Caller("alice", "user"), []
    for only in (True, False):
        ask = job_stimulus(a_spec("tell"), caller, "g", brief=True, validate_only=only)
        told.append((await hooks.seen(a_spec("tell"), ask)).hooked)
    assert told == ["on_submit: 1 tasks, on trial", "on_submit: 1 tasks, for real"]


async def test_a_group_that_is_too_large_runs_no_hook(hooked: HookedHouse) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await hooked.alice.SubmitJobs(
            a_group("fine", "fine", count=200, request_id="g"), timeout=DEADLINE_S
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not hooked.desk.calls


async def test_nobody_sends_notes_of_their_own(hooked: HookedHouse) -> None:
    spec = a_spec("fine")
    spec.hook_notes.add(hook="on_submit", text="approved")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await hooked.alice.SubmitJob(
            wire.SubmitJobRequest(request_id="r", spec=spec), timeout=DEADLINE_S
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class Operators:
    """Calls of an admin about hooks."""

    def __init__(self, hooked: HookedHouse) -> None:
        self.root: Any = AdminServiceStub(hooked.house.channel_as("root", Role.ADMIN))

    async def show(self) -> admin.HooksFacts:
        answer = await self.root.GetHooks(admin.GetHooksRequest(), timeout=DEADLINE_S)
        return answer.hooks  # type: ignore[no-any-return]  # of a stub

    async def reload(self) -> None:
        request = admin.ReloadHooksRequest(request_id="again")
        await self.root.ReloadHooks(request, timeout=DEADLINE_S)

    async def test(self, source: str, **more: Any) -> list[admin.HookTrial]:
        request = admin.TestHooksRequest(source=source, file="new.py", **more)
        return [*(await self.root.TestHooks(request, timeout=DEADLINE_S)).trials]


async def test_operators_see_hooks_and_their_calls(hooked: HookedHouse) -> None:
    await hooked.submit("change")
    await hooked.refused("refuse")
    await hooked.refused("throw")
    told = await Operators(hooked).show()
    (hook,) = told.hooks
    assert (hook.hook, hook.policy) == ("on_submit", "closed")
    assert (hook.ok_count, hook.refused_count, hook.failed_count) == (1, 1, 1)
    assert told.running
    assert "memory" in told.walls


async def test_a_reload_takes_a_good_file_and_refuses_a_bad_one(tmp_path: Path) -> None:
    file = tmp_path / "hooks.py"
    async with hooked_house(tmp_path, file=str(file)) as hooked:
        operators = Operators(hooked)
        for bad, words in (
            ("def on_submit(:", "invalid syntax"),
            ("import no_such_module", "ModuleNotFoundError"),
            ("on_end = print", "has no function on_submit"),
        ):
            file.write_text(bad)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await operators.reload()
            assert words in (caught.value.details() or "")
            assert "the former file goes on" in (caught.value.details() or "")
            answer = await hooked.submit("change", request_id=bad[:9])
            assert len(answer.hook_notes) == 5
        file.write_text("def on_submit(job, user, context): return 'new rules'")
        await operators.reload()
        (note,) = (await hooked.submit("change", request_id="new")).hook_notes
        assert note.text == "new rules"


async def test_a_trial_tells_all_and_does_nothing(hooked: HookedHouse) -> None:
    await hooked.submit("change")
    before = dict(hooked.desk.calls)
    operators = Operators(hooked)
    source = SOURCE.replace("is short now", "will be short")
    (mine,) = await operators.test(source, spec=a_spec("change"), user="alice")
    assert hook_words(mine.notes[2]) == "on_submit changed label project from none to alice"
    assert mine.notes[-1].text == "your job will be short"
    (refused,) = await operators.test(source, spec=a_spec("refuse"), user="bob")
    assert refused.refusal == "bob has no project"
    (failed,) = await operators.test(source, spec=a_spec("forbidden"))
    assert failed.failure == "it changed gpus, which no hook may change"
    (told,) = await operators.test(source, spec=a_spec("print"))
    assert told.printed == "looked at print"
    (last,) = await operators.test(SOURCE, last_count=5)
    assert (last.job_id, last.name) == ("1", "change")
    assert dict(hooked.desk.calls) == before
    assert len(hooked.house.control.published.all_jobs) == 1


async def test_a_trial_of_attempts_tells_all_and_does_nothing(hooked: HookedHouse) -> None:
    control, operators = hooked.house.control, Operators(hooked)
    for number, name in enumerate(("fine", "bare"), 1):
        await hooked.submit(name, request_id=name)
        attempt = control.place(JobId(number), "gpu01")
        control.note("attempt_running", job_id=JobId(number), attempt=1)
        ended = attempt._replace(state=AttemptState.FAILED, exit_code=3)
        control.published.all_attempts[attempt.key] = ended
        control.note("attempt_failed", job_id=JobId(number), attempt=1)
    events, jobs = [*control.published.journal], dict(control.published.all_jobs)
    before = dict(hooked.desk.calls)
    faulty = SOURCE.replace('return Hold("look first")', "return attempt.end_code")
    raised, held = await operators.test(faulty, hook="on_end", last_count=5)
    assert (raised.job_id, raised.attempt, raised.name) == ("2", 1, "bare")
    assert raised.failure.startswith("AttributeError: 'HookAttempt' object has no attribute")
    assert (held.job_id, held.hold) == ("1", "exit 3 means a broken data set")
    assert hook_words(held.notes[0]) == "on_end: 1.1.on_end failed"
    (start,) = await operators.test(SOURCE, hook="on_start", last_count=1)
    assert hook_words(start.notes[0]) == "on_start: 2.1.on_start on gpu01"
    assert [*control.published.journal] == events
    assert (control.published.all_jobs, dict(hooked.desk.calls)) == (jobs, before)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hook": "on_ende", "last_count": 1}, "no hook 'on_ende'; did you mean 'on_end'?"),
        ({"hook": "on_end"}, "name a job, or 1 to 100 of the last"),
        ({"hook": "on_end", "last_count": 1, "user": "bob"}, "takes no job and no user"),
    ],
)
async def test_a_trial_of_attempts_that_makes_no_sense_is_refused(
    hooked: HookedHouse, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Operators(hooked).test(SOURCE, **more)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in (caught.value.details() or "")


async def test_a_trial_says_which_hook_it_has_tried(hooked: HookedHouse) -> None:
    for asked, told in (("", "on_submit"), ("on_end", "on_end")):
        request = admin.TestHooksRequest(source=SOURCE, hook=asked, last_count=1)
        answer = await Operators(hooked).root.TestHooks(request, timeout=DEADLINE_S)
        assert answer.hook == told


async def test_a_trial_of_what_cannot_be_loaded_is_refused(hooked: HookedHouse) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Operators(hooked).test("raise OSError('no')", spec=a_spec("x"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "new.py cannot be loaded: OSError: no" in (caught.value.details() or "")


async def test_a_master_without_hooks_says_so(tmp_path: Path) -> None:
    async with rpc_house(tmp_path) as house:
        operators = Operators(HookedHouse(house, set()))
        assert (await operators.show()).file == ""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await operators.reload()
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
