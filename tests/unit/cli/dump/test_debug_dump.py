"""What a debug dump takes, what it leaves out, and how it is written."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path

import pytest

from dlq_cli.dump import taking
from dlq_cli.dump.redacting import GONE, redacted
from support.cli_run import Dlq


@pytest.mark.parametrize(
    "secret",
    [
        "-----BEGIN PRIVATE KEY-----\nHUSH\n-----END PRIVATE KEY-----",
        "-----BEGIN EC PRIVATE KEY-----\nHUSH",
        "joined with dlq1.12.HUSHHUSHHUSHHUSH.abcdef",
        "open http://127.0.0.1:7330/enter?user=ada&link=HUSH",
        "https://h/wall#HUSH",
        "Authorization: Bearer HUSHHUSHHUSH",
        "postgresql://dlq:HUSH@db:5432/dlq",
        'password = "HUSH"',
        "client_secret_value: HUSH",
        "WANDB_API_KEY=HUSH",
        '{"token": "HUSH"}',
        '{"job": {"spec": {"environment": {"A": "HUSH"}}}}',
        '{"command": ["train.py", "--data=HUSH"]}',
        '{"spec": {"script": "HUSH", "comment": "HUSH", "labels": {"a": "HUSH"}}}',
        '{"error": "cannot use dlq1.1.HUSHHUSHHUSHHUSH.ab"}',
        "postgresql://dlq:a@HUSH@db:5432/dlq",
        'url = "https://hooks.slack.com/services/T0/B0/HUSH"',
        '{"url": "https://discord.com/api/webhooks/1/HUSH"}',
        'password = """\nHUSH\n"""',
        'password = "a\\"HUSH"',
        "passwd = 'it''s HUSH'",
        'pass = "HUSH"',
        '{"pwd": "HUSH"}',
        "ran dlq-x --token HUSH",
        "Cookie: a=HUSH; b=HUSH",
        "sk-proj-HUSHHUSHHUSH",
        "hf_HUSHHUSHHUSH",
        "ghp_HUSHHUSHHUSHHUSH",
        "AKIAHUSHHUSHHUSHHUSH",
        "pypi-HUSHHUSHHUSH",
        "sk_live_HUSHHUSHHUSH",
        "AccountName=ada;AccountKey=HUSH;",
        'access_key = "HUSH"',
        "eyJHUSHHUSHHUSH.eyJHUSHHUSH.HUSH",
        '  {"command": ["HUSH"]}',
    ],
)
def test_a_secret_is_left_out(secret: str) -> None:
    clean = redacted(f"before\n{secret}\n")
    assert "HUSH" not in clean
    assert GONE in clean
    assert clean.startswith("before\n")


def test_a_key_whose_begin_was_cut_off_is_left_out() -> None:
    clean = redacted("HUSH\nMIIB+/==\n-----END PRIVATE KEY-----\nafter")
    assert clean == f"{GONE}\nafter"


def test_a_long_line_takes_a_time_that_is_proportional_to_it() -> None:
    text = "a" * 300_000  # nobody would wait for the square of this
    assert redacted(text) == text


def test_everything_else_stays() -> None:
    text = '{"event": "job_ended", "job_id": 7, "user": "ada"}\nlisten = "127.0.0.1:7320"\n'
    assert redacted(text) == text


def test_commands_come_when_they_are_asked_for_and_environments_never() -> None:
    line = '{"command": ["train.py"], "environment": {"A": "HUSH"}}'
    clean = redacted(line, with_commands=True)
    assert "train.py" in clean
    assert "HUSH" not in clean


def test_a_dump_without_a_master_is_whole_private_and_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "ASKED", (("nodes", "--json"),))
    path = tmp_path / "dump.tar.gz"
    said = Dlq(tmp_path / "home")("debug-dump", "-o", str(path))
    assert said.code == 0, said.err
    assert "answers/nodes.json: " in said.out
    assert "Left out on purpose" in said.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        names = archive.getnames()
        nodes = archive.extractfile("dlq-debug-dump/answers/nodes.json")
        assert nodes is not None
        assert b"nobody is logged in here" in nodes.read()
    assert {"dlq-debug-dump/LIST.txt", "dlq-debug-dump/host.txt"} <= {*names}


def test_a_file_that_is_there_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "ASKED", ())
    path = tmp_path / "dump.tar.gz"
    path.write_text("mine")
    said = Dlq(tmp_path / "home")("debug-dump", "-o", str(path))
    assert said.code == 2
    assert "File exists" in said.err
    assert path.read_text() == "mine"


def test_a_dump_is_bounded_and_says_what_had_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "ASKED", ())
    monkeypatch.setattr(taking, "LARGEST_DUMP", 10)
    parts = list(taking.parts_of(tmp_path, None, with_commands=False))
    assert {part.note for part in parts} == {"not taken: the dump is large enough"}


def test_a_part_that_fails_leaves_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone.toml"
    gone.symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(taking, "ASKED", ())
    monkeypatch.setattr(taking, "CONFIGS", (tmp_path,))  # a directory is no file
    (part,) = [
        each for each in taking.parts_of(tmp_path, None, with_commands=False)
        if each.name.startswith("config/")
    ]  # fmt: skip
    assert part.note.startswith("not taken: ")


def test_secrets_of_a_long_answer_are_out_before_it_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "LARGEST_PART", 1_000)
    spec = '"environment": {"A": "HUSH"}, "script": "HUSH"'
    for answer in ('{"end": "' + "x" * 980 + f'", {spec}}}', f'{{{spec}, "end": "{"x" * 980}"}}'):
        clean = taking.cleaned(answer, with_commands=False)
        assert 900 < len(clean) <= 1_000
        assert "HUSH" not in clean


def test_the_first_line_of_a_cut_log_is_left_out_unless_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "nodeagent.toml"
    log.write_text('{"environment": {"A": "HUSH", "B": "HUSH"}}\nlast\n')
    monkeypatch.setattr(taking, "ASKED", ())
    monkeypatch.setattr(taking, "CONFIGS", (log,))
    monkeypatch.setattr(taking, "LARGEST_PART", 30)
    texts = {part.name: part.text for part in taking.parts_of(tmp_path, None, with_commands=False)}
    assert texts["config/nodeagent.toml"] == "last\n"


def test_a_job_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "ASKED", ())
    said = Dlq(tmp_path / "home")("debug-dump", "--job", "99", "-o", str(tmp_path / "d.tar.gz"))
    assert said.code == 0
    assert "nothing about job 99 is in it: nobody is logged in here" in said.err
