"""Tables on terminals of every width: columns are cut and left out, and no line ever wraps."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.lists.columns import DEFAULT, parse_format
from dlq_cli.lists.listing import ListLayout
from dlq_cli.lists.past import DEFAULT as PAST_DEFAULT
from dlq_cli.lists.past import parse_format as past_format
from dlq_cli.lists.past import past_table
from dlq_cli.output.render import Cell, OutputLook, fitted, table
from dlq_common.text.wire import to_timestamp
from support.wire_jobs import EPOCH_S, a_job

WIDTHS = (200, 132, 100, 80, 50, 40, 20)
JOBS = [
    a_job(17, "running", name="pretrain-llama-70b-on-everything", node_ids=["gpu01", "gpu02", "gpu17"]),  # noqa: E501
    a_job(123456, name="x" * 60, wait_code="resources"),
    a_job(21, "completed", exit_code=0, end_reason="completed", end_time=to_timestamp(EPOCH_S + 9)),
    a_job(19, "failed", end_reason="user_error", exit_code=3),
]  # fmt: skip


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> OutputLook:
    monkeypatch.setenv("COLUMNS", str(width))
    return OutputLook(tty=True, color=False, now_s=EPOCH_S + 100)


def lines(jobs: list[job_pb2.Job], look: OutputLook, columns: str = "") -> list[str]:
    chosen = parse_format(columns) if columns else DEFAULT
    layout = ListLayout(columns=chosen, headings=True, ids_only=False, sort="")
    return layout.text(jobs, look).splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_list_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    look = terminal(monkeypatch, width)
    for columns in ("", "id,name,user,queue,state,submit,start,end,where,reason,promise"):
        assert max(map(len, lines(JOBS, look, columns))) <= width
    past = past_table(past_format(",".join(PAST_DEFAULT)), JOBS, look, headings=True)
    assert max(map(len, past.splitlines())) <= width


def test_what_matters_most_stays_at_80_and_at_50_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    at_80, at_50 = (lines(JOBS, terminal(monkeypatch, width)) for width in (80, 50))
    assert at_80[0].split() == ["JOB_ID", "NAME", "USER", "STATE", "GPUS", "TIME", "NODES(REASON)"]
    assert at_50[0].split() == ["JOB_ID", "NAME", "STATE", "GPUS", "TIME"]
    assert at_50[2].split()[0] == "123456"
    assert at_80[3].count("completed") == 1
    assert "(user_error, exit" in at_80[4]


def test_a_pipe_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    pipe = OutputLook(tty=False, color=False, now_s=EPOCH_S)
    assert "x" * 60 in "\n".join(lines(JOBS, pipe))


def test_a_wide_column_gives_way_before_another_goes() -> None:
    cells = (
        Cell("ID"),
        Cell("NAME", least=4),
        Cell("NODES", least=5, drop=1),
        Cell("QUEUE", drop=2),
    )
    assert fitted(cells, (3, 20, 20, 7), 80) == {0: 3, 1: 20, 2: 20, 3: 7}
    assert fitted(cells, (3, 20, 20, 7), 40) == {0: 3, 1: 12, 2: 12, 3: 7}
    assert fitted(cells, (3, 20, 20, 7), 24) == {0: 3, 1: 8, 2: 9}
    assert fitted(cells, (3, 20, 20, 7), 10) == {0: 3, 1: 5}
    assert (
        table((Cell("A"),), [["long word"]], OutputLook(tty=False, color=False, now_s=0.0))
        == "A\nlong word\n"
    )
