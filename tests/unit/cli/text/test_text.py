"""Tables, columns, states and times: what a terminal sees, and what a pipe sees."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.exit_codes import code_of_error, code_of_job
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.columns import COLUMNS, LetterFormat, parse_format, sort_jobs, where
from dlq_cli.lists.since import ended_within_s
from dlq_cli.lists.states import parse_states
from dlq_cli.lists.story import job_text
from dlq_cli.output.render import Cell, OutputLook, age, clean_line, facts, paint, table, when
from dlq_cli.words import ATTEMPT_STATES, JOB_STATES, SLURM_CODES, shown_state
from dlq_common import errors
from dlq_common.text.wire import to_duration
from support.wire_jobs import EPOCH_S, a_job

PIPE = OutputLook(tty=False, color=False, now_s=EPOCH_S + 100)
TERMINAL = OutputLook(tty=True, color=True, now_s=EPOCH_S + 100)


def test_a_pipe_gets_whole_names_absolute_times_and_no_colour() -> None:
    rows = [["x" * 90, "running"]]
    text = table([Cell("NAME", most=10), Cell("STATE", state=True)], rows, PIPE)
    assert text == f"{'NAME':<90}  STATE\n{'x' * 90}  running\n"
    assert when(EPOCH_S, PIPE) == "2026-11-20T08:00:00.000Z"


def test_a_terminal_gets_short_names_ages_and_the_state_word_in_colour() -> None:
    rows = [["x" * 90, "running"]]
    text = table([Cell("NAME", most=10), Cell("STATE", state=True)], rows, TERMINAL)
    assert "xxxxxxxxx…  \x1b[32mrunning\x1b[0m" in text
    assert when(EPOCH_S, TERMINAL) == "1m40s ago"


def test_what_a_terminal_would_obey_is_made_harmless() -> None:
    hostile = "a\x1b[2Jb\nc\u202ed"
    assert clean_line(hostile) == "a?[2Jb?c?d"
    assert "\x1b" not in table([Cell("NAME")], [[hostile]], TERMINAL)
    assert "\x1b" not in facts([("name", hostile)])
    assert "\x1b" not in LetterFormat("%j").row(a_job(1, name=hostile), PIPE)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (200, "3m20s"), (7500, "2h05m"), (356_400, "4d03h"), (-5, "0s")],
)
def test_ages_show_two_units(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_a_word_without_a_colour_stays_plain() -> None:
    assert paint("queued", TERMINAL) == "queued"


def test_every_state_of_the_wire_has_a_slurm_code() -> None:
    shown = {state for state in JOB_STATES.values() if state} | {
        state for number, state in ATTEMPT_STATES.items() if state and number <= 6
    }
    # A trial that runs, and a job that is out in its node's memory.
    assert set(SLURM_CODES) == {*shown, "profiling", "suspended"}


def test_a_living_attempt_shows_its_state_and_an_unheard_of_one_is_unknown() -> None:
    assert shown_state(a_job(1, "running")) == "running"
    assert shown_state(a_job(1, "held")) == "held"
    job = a_job(1)
    job.state = 99  # type: ignore[assignment]  # what a newer master might send
    assert shown_state(job) == "unknown"


def test_a_trial_that_runs_is_profiling_on_the_gpus_that_it_holds() -> None:
    job = a_job(1, "running", profiling=True, held_gpu_count=2)
    job.resources.gpu_count = 8
    assert (shown_state(job), COLUMNS["gpus"].text(job, PIPE)) == ("profiling", "2")
    assert COLUMNS["code"].text(job, PIPE) == "R"
    text = job_text(job, PIPE)
    assert ": profiling\n" in text
    assert "2 GPUs, to be measured on" in text
    assert "measured on" not in job_text(a_job(1, "running"), PIPE)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("state", ["queued", "running", "failed", "held"])
def test_every_column_has_text_and_order_for_every_job(name: str, state: str) -> None:
    job = a_job(1, state, time_limit_duration=to_duration(60))
    assert isinstance(COLUMNS[name].text(job, PIPE), str)
    assert COLUMNS[name].text(job_pb2.Job(job_id="1"), PIPE) is not None
    assert [j.job_id for j in sort_jobs([job], name, PIPE)] == ["1"]


def test_the_last_column_says_where_or_why_not() -> None:
    assert where(a_job(1, "running", virtual_devices=True), PIPE) == "gpu[01-02] [virtual]"
    assert where(a_job(1, "pausing", stop_cause="preempt"), PIPE) == "gpu[01-02] (preempt)"
    assert where(a_job(1, "held", hold_reason="disk"), PIPE) == "(user: disk)"
    assert where(a_job(1, "failed", end_reason="oom_host", exit_signal=9), PIPE) == (
        "(oom_host, signal 9)"
    )
    assert where(a_job(1), PIPE) == "(waiting)"


def test_slurm_letters_pad_and_cut_as_squeue_does() -> None:
    layout = parse_format("%.6i|%5j|%t|%T")
    assert isinstance(layout, LetterFormat)
    assert layout.heading() == "JOB_ID|NAME |ST|STATE"
    assert layout.row(a_job(17, "running"), PIPE) == "    17|train|R|RUNNING"
    assert layout.row(a_job(18, "queued"), PIPE) == "    18|train|PD|PENDING"
    assert layout.row(a_job(19, "held"), PIPE) == "    19|train|PD|PENDING"


def test_unknown_columns_letters_and_states_are_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.InvalidRequest, match="did you mean 'name'"):
        parse_format("id,nam")
    with pytest.raises(errors.InvalidRequest, match="there is no %z"):
        parse_format("%i %z")
    with pytest.raises(errors.InvalidRequest, match="--sort: there is no column 'x'"):
        sort_jobs([], "x", PIPE)
    with pytest.raises(errors.InvalidRequest, match="did you mean 'running'"):
        parse_states("runing")


def test_jobs_sort_by_several_columns_each_in_its_own_direction() -> None:
    jobs = [a_job(1, "running"), a_job(2), a_job(10)]
    assert [j.job_id for j in sort_jobs(jobs, "state,-id", PIPE)] == ["10", "2", "1"]


def test_states_are_ours_or_slurms() -> None:
    assert parse_states("R,failed") == ["running", "profiling", "unknown", "failed"]
    assert parse_states("running") == ["running", "profiling"], "a trial runs"
    assert parse_states("profiling") == ["profiling"]
    assert parse_states("pd") == ["pending", "queued", "held"]
    assert parse_states(None) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 3600), ("all", None), ("2d", 172_800), ("2026-11-20T07:00:00+00:00", 3600)],
)
def test_since_is_a_span_an_instant_or_all(text: str | None, seconds: int | None) -> None:
    assert ended_within_s(text, EPOCH_S, 3600) == seconds


@pytest.mark.parametrize("text", ["the other day", "2099-01-01", ""])
def test_since_refuses_what_is_no_past(text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="--since"):
        ended_within_s(text, EPOCH_S, 3600)


def test_every_job_has_the_same_keys_in_json() -> None:
    keys = list(job_facts(a_job(1)))
    for state in ("running", "failed", "held"):
        assert list(job_facts(a_job(2, state))) == keys


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequest("x"), 2),
        (errors.NotFound("x"), 3),
        (errors.PermissionDenied("x"), 4),
        (errors.Unauthenticated("x"), 4),
        (errors.Unsatisfiable("x"), 5),
        (errors.QuotaExceeded("x"), 75),
        (errors.Unavailable("x"), 69),
        (errors.NotLeader("x"), 75),
        (errors.TryAgain("x"), 75),
        (errors.Conflict("x"), 75),
        (errors.IllegalTransition("x"), 1),
        (errors.InternalError("x"), 1),
    ],
)
def test_each_failure_has_its_exit_code(error: errors.DlqError, code: int) -> None:
    assert code_of_error(error) == code


@pytest.mark.parametrize(
    ("completed", "exit_code", "signal", "code"),
    [(True, 0, 0, 0), (False, 3, 0, 3), (False, None, 9, 137), (False, None, 0, 1), (True, None, 0, 0)],  # noqa: E501
)  # fmt: skip
def test_a_job_gives_its_own_exit_code(
    completed: bool, exit_code: int | None, signal: int, code: int
) -> None:
    assert code_of_job(completed=completed, exit_code=exit_code, exit_signal=signal) == code


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"exit_signal": 9}, "0:9"),
        ({"exit_code": 3}, "3:0"),
        ({"exit_code": 0}, "0:0"),
        ({}, ""),
    ],
)
def test_the_exit_column_is_sacct_s(fields: dict[str, int], text: str) -> None:
    assert COLUMNS["exit"].text(a_job(1, "failed", **fields), PIPE) == text
