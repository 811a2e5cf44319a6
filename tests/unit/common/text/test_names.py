"""Names and paths from outside: what passes is harmless, what is refused is named in one line."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text import names

HOSTILE = [
    "",
    "a\nb",
    "a\0b",
    "a\x1b[31m",
    "$(id)",
    "`id`",
    "a b",
    "a;b",
    "..",
    "../x",
    "-rf",
    "a/b",
]


UNPRINTABLE = ["", "a\nb", "a\0b", "a\x1b[31m", " ", "..", "../x", "a/../b", "a\u202eb", "\ud800"]


@pytest.mark.parametrize("name", [*UNPRINTABLE, "a" * 257])
def test_a_hostile_job_name_is_refused_in_one_printable_line(name: str) -> None:
    with pytest.raises(ValueError, match="job name") as refused:
        names.check_job_name(name)
    assert names.printable(str(refused.value)) == str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "name",
    ["llama-ft", "lr=0.1", "a" * 256, "P/1/op/2", "nf-hello_(1)", "a b", "-x", ".hidden", "é"],
)
def test_a_job_name_of_slurm_passes_unchanged(name: str) -> None:
    assert names.check_job_name(name) == name


@given(text=st.text(st.characters(), max_size=300) | st.sampled_from(UNPRINTABLE))
def test_a_name_made_from_any_text_is_allowed(text: str) -> None:
    made = names.job_name_from(text)
    assert names.check_job_name(made) == made


@pytest.mark.parametrize("name", [*HOSTILE, "Root", "1st", "a" * 33])
def test_what_is_not_a_login_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="user name"):
        names.check_user_name(name)


@pytest.mark.parametrize("name", [*HOSTILE, "Gpu01", "-x", "x-", "a..b", "a" * 64, "a." * 127])
def test_what_is_not_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="node name"):
        names.check_node_name(name)


@pytest.mark.parametrize("name", [*HOSTILE, "Big", "a" * 64])
def test_what_operators_may_not_name_a_queue_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="queue"):
        names.check_word(name, "queue")


def test_plain_names_of_users_nodes_and_queues_pass() -> None:
    assert names.check_user_name("ada.l-1") == "ada.l-1"
    assert names.check_node_name("gpu01.lab.example") == "gpu01.lab.example"
    assert names.check_word("batch-2", "queue") == "batch-2"


@pytest.mark.parametrize("name", ["BASH_FUNC_module%%", "BASH_FUNC_conda-activate%%"])
def test_a_function_that_a_bash_exports_is_a_variable(name: str) -> None:
    assert names.check_env_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "1A", "A-B", "A=B", "A\n", "DLQ_JOB_ID", "PET_NNODES", "É", "A%%", "BASH_FUNC_%%",
     "BASH_FUNC_a b%%", "BASH_FUNC_a%%\n"],
)  # fmt: skip
def test_a_variable_that_is_malformed_or_ours_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="environment name"):
        names.check_env_name(name)


def test_an_environment_of_two_megabytes_is_refused_before_exec_would_fail() -> None:
    with pytest.raises(ValueError, match="too long"):
        names.check_env({"A": "x" * 2_000_000})
    with pytest.raises(ValueError, match="too large"):
        names.check_env({f"A{number}": "x" * 1000 for number in range(2000)})
    with pytest.raises(ValueError, match="NUL"):
        names.check_env({"A": "x\0y"})
    fine = {"HF_HOME": "/data/hf", "TEXT": "two\nlines and $(no shell)"}
    assert names.check_env(fine) == fine


@pytest.mark.parametrize(
    "path", ["", "a", "/a/../b", "/..", "/a\nb", "/a\0b", "/a\x1b", "/" + "a" * 4096]
)
def test_an_absolute_path_that_escapes_or_hides_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="workdir"):
        names.check_absolute_path(path, "workdir")


@pytest.mark.parametrize("path", ["", "/a", "..", "a/../../b", "a/..", "a\nb"])
def test_a_relative_path_that_leaves_its_directory_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="log path"):
        names.check_relative_path(path, "log path")


def test_ordinary_paths_pass_unchanged() -> None:
    assert names.check_absolute_path("/data/ckpt/..hidden/x", "workdir") == "/data/ckpt/..hidden/x"
    assert names.check_relative_path("logs/%j.out", "log path") == "logs/%j.out"


def test_an_argument_may_hold_anything_but_nul() -> None:
    assert names.check_argument("two\nlines", "argument") == "two\nlines"
    with pytest.raises(ValueError, match="NUL"):
        names.check_argument("a\0b", "argument")


CHECKS: list[Callable[[str], str]] = [
    names.check_job_name,
    names.check_user_name,
    names.check_node_name,
    names.check_env_name,
    lambda text: names.check_word(text, "team"),
    lambda text: names.check_absolute_path(text, "path"),
    lambda text: names.check_relative_path(text, "path"),
]


@pytest.mark.parametrize("check", CHECKS)
@given(text=st.text(st.characters(), max_size=40) | st.sampled_from(HOSTILE))
def test_what_passes_holds_no_control_character_and_no_parent(
    check: Callable[[str], str], text: str
) -> None:
    refusal = ""
    try:
        assert check(text) == text
    except ValueError as refused:
        refusal = str(refused)
    assert names.printable(refusal or text) == (refusal or text)
    assert refusal or ".." not in text.split("/")
