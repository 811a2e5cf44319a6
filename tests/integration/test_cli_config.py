"""`dlq config`: what holds, where it came from, and what a flag, the environment and a file can
do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq_client.line.identity import load_identity
from dlq_common.text.instants import format_instant
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_job

pytestmark = pytest.mark.integration


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.jobs = {"17": a_job(17, "running")}
    yield running
    running.stop()


@pytest.fixture
def home(master: FakeMaster, tmp_path: Path) -> Path:
    return master.home(tmp_path / "home")


@pytest.fixture
def dlq(home: Path) -> Dlq:
    return Dlq(home)


def origins(dlq: Dlq, *flags: str) -> dict[str, str]:
    said = dlq(*flags, "config", "--json")
    assert said.code == 0, said.err
    return {each["key"]: each["origin"] for each in json.loads(said.out)["settings"]}


def test_config_shows_what_holds_and_says_where_from(
    dlq: Dlq, home: Path, master: FakeMaster, snapshot: SnapshotAssertion
) -> None:
    identity = load_identity(home)
    assert identity is not None
    until = format_instant(identity.expires_s)
    dlq("config", "set", "color", "never")

    def told(*more: str) -> str:
        said = dlq("config", *more)
        assert (said.code, said.err) == (0, "")
        text = said.out
        for fact, word in ((str(home), "HOME"), (until, "UNTIL"), (identity.address, "ADDRESS")):
            text = text.replace(fact, word)
        return text

    words = [line.split() for line in told().splitlines()]
    assert words == snapshot
    assert json.dumps(json.loads(told("--json")), indent=1) == snapshot


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(
    dlq: Dlq, home: Path
) -> None:
    path = home / "config.toml"
    assert origins(dlq)["color"] == "default"
    assert origins(dlq)["patience_s"] == "$DLQ_PATIENCE_S"
    path.write_text("# mine\ncolor = 'always'\npatience_s = 1\n")
    assert origins(dlq)["color"] == f"{path}:2"
    assert origins(dlq)["patience_s"] == "$DLQ_PATIENCE_S"
    assert origins(dlq, "--patience", "3", "--color", "never") | {"home": ""} == origins(dlq) | {
        "home": "", "patience_s": "--patience", "color": "--color",
    }  # fmt: skip


def test_a_color_of_the_file_is_obeyed(dlq: Dlq) -> None:
    assert "\x1b[32m" not in dlq("status").out
    assert dlq("config", "set", "color", "always").code == 0
    assert "\x1b[32m" in dlq("status").out
    assert "\x1b[32m" not in dlq("--color", "never", "status").out
    assert dlq("config", "unset", "color").code == 0
    assert "\x1b[32m" not in dlq("status").out


def test_set_and_unset_leave_the_rest_of_the_file_alone(dlq: Dlq, home: Path) -> None:
    path = home / "config.toml"
    path.write_text("# mine\ncolor = 'never' # on purpose\n\n# that is all\n")
    assert dlq("config", "set", "patience_s", "60").out == "patience_s: 5  ($DLQ_PATIENCE_S)\n"
    assert dlq("config", "set", "color", "always").code == 0
    assert path.read_text() == '# mine\ncolor = "always"\n\n# that is all\npatience_s = 60\n'
    assert dlq("config", "unset", "color").out == "color: auto  (default)\n"
    assert dlq("config", "unset", "color").code == 0
    assert path.read_text() == "# mine\n\n# that is all\npatience_s = 60\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("colour = 'never'\n", ":1: there is no setting 'colour'; did you mean 'color'?"),
        ("\ncolor = 'blue'\n", ":2: color: 'blue' is none of auto, always, never"),
        ("color = true\n", ":1: color: not a word or a number"),
        ("color\n", ": not TOML"),
        ("login_socket = 'here'\n", ":1: login_socket: 'here' is not an absolute path"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(
    content: str, told: str, dlq: Dlq, home: Path
) -> None:
    (home / "config.toml").write_text(content)
    said = dlq("config")
    assert said.code == 2
    assert f"{home}/config.toml{told}" in said.err


def test_a_key_that_is_none_can_be_taken_out(dlq: Dlq, home: Path) -> None:
    (home / "config.toml").write_text("colour = 'never'\n")
    assert "dlq config unset colour takes it out" in dlq("status").err
    assert dlq("config", "unset", "colour").code == 0
    assert dlq("status").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("set", "color", "blue"), "'blue' is none of auto"),
        (("set", "patience_s", "-1"), "no such option"),
        (("set", "patience_s", "soon"), "'soon' is not a number of seconds"),
        (("set", "patience_s", "nan"), "'nan' is not a number of seconds"),
        (("set", "login_socket", "x"), "'x' is not an absolute path"),
        (("set", "queue", "x"), "'queue'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(words: tuple[str, ...], told: str, dlq: Dlq) -> None:
    said = dlq("config", *words)
    assert said.code == 2
    assert told.lower() in said.err.lower()


def test_the_environment_is_checked_too(home: Path) -> None:
    said = Dlq(home)("status", patience_s=float("nan"))
    assert (said.code, said.err) == (
        2, "dlq: $DLQ_PATIENCE_S: 'nan' is not a number of seconds\n",
    )  # fmt: skip


def test_config_without_an_identity_says_so_and_asks_nobody(tmp_path: Path) -> None:
    said = Dlq(tmp_path / "nobody")("config")
    assert said.code == 0
    assert "nobody is logged in here: dlq login" in said.out


def test_a_broken_file_is_told_with_what_mends_it_and_is_left_as_it_is(
    dlq: Dlq, home: Path
) -> None:
    file = home / "config.toml"
    file.write_text("color = \n")
    for words in (["config"], ["config", "set", "color", "never"], ["config", "unset", "color"]):
        said = dlq(*words)
        assert said.code == 2
        assert "not TOML" in said.err
        assert "dlq config reset" in said.err
    assert file.read_text() == "color = \n"
    assert dlq("config", "reset").out == f"the old settings are in {home}/config.toml.old\n"
    assert (home / "config.toml.old").read_text() == "color = \n"
    assert dlq("config", "set", "color", "never").code == 0
    assert json.loads(dlq("config", "reset", "--json").out)["aside"].endswith("config.toml.old")
    assert dlq("config", "reset").out == "there was nothing to reset\n"


def test_changes_are_told_in_json_too(dlq: Dlq, home: Path) -> None:
    (told,) = json.loads(dlq("config", "set", "--json", "patience_s", "60").out)["settings"]
    assert told == {"key": "patience_s", "value": 5.0, "origin": "$DLQ_PATIENCE_S"}
    (told,) = json.loads(dlq("config", "unset", "--json", "color").out)["settings"]
    assert told == {"key": "color", "value": "auto", "origin": "default"}
