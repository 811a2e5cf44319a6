"""The keywords of `submit` are the words of `dlq submit` and of job files, read by one reader."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import dlq
from dlq_api.words import FLAG_WORDS, KEY_WORDS, WORDS, SubmitWords, spec_of
from dlq_cli.spec.fields import FLAGS, READERS
from dlq_cli.spec.message import to_message

# What `import dlq` may load besides what Python itself has loaded.
ALLOWED = {
    "dlq", "importlib", "importlib._bootstrap", "importlib._bootstrap_external", "warnings",
}  # fmt: skip


def asked(*arguments: object, **words: object) -> object:
    spec, _ = spec_of(arguments[0], arguments[1:], words)  # type: ignore[arg-type]  # also bad ones
    return to_message(spec)


def test_the_typed_keywords_are_the_flags_and_the_keys_of_job_files() -> None:
    flags = {
        name[2:].replace("-", "_") for flag in FLAGS for name in flag.names if name.startswith("--")
    }
    keys = {key for key in READERS if "." not in key}
    assert set(SubmitWords.__annotations__) == flags | keys == WORDS


def test_a_keyword_that_is_a_flag_and_a_key_means_one_thing() -> None:
    both = {word for word in FLAG_WORDS if word in READERS}
    assert {word for word in both if FLAG_WORDS[word].key != word} == set()
    assert not KEY_WORDS & FLAG_WORDS.keys()


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ({"gpus": 8}, {"gpus": "8"}),
        (
            {"gpus_per_node": "h100-80gb:4", "nodes": 2},
            {"gpus_per_node": "h100-80gb:4", "nodes": "2"},
        ),
        ({"time": timedelta(hours=2)}, {"time": "2h"}),
        ({"env": {"A": "1", "B": "x y"}}, {"env": ["A=1", "B=x y"]}),
        ({"label": {"a": "b"}}, {"labels": {"a": "b"}}),
        ({"work": "3h", "deadline": "8h"}, {"estimate": 180, "deadline": "8h"}),
        ({"chdir": Path("/tmp")}, {"workdir": "/tmp"}),
        ({"hold": False, "time": None}, {}),
        ({"dependency": "afterok:12"}, {"depends_on": "afterok:12"}),
    ],
)
def test_values_may_be_words_or_pythons_own(
    words: dict[str, object], same: dict[str, object]
) -> None:
    assert asked(["true"], **words) == asked(["true"], **same)


def test_a_mapping_is_the_content_of_a_job_file(tmp_path: Path) -> None:
    tree = {"command": ["true"], "time_limit": "1h", "resources": {"gpus": 4, "cpus": 8}}
    path = tmp_path / "job.toml"
    path.write_text('command = ["true"]\ntime_limit = "1h"\n[resources]\ngpus = 4\ncpus = 8\n')
    assert asked(tree) == asked(path)


def test_a_job_file_takes_no_arguments(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('command = ["true"]\n')
    for source in (path, {"command": ["true"]}):
        with pytest.raises(dlq.InvalidRequest, match="takes no arguments, and '--lr' follows"):
            asked(source, "--lr")


def test_keywords_win_over_a_script_whose_lines_count(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("#!/usr/bin/env python3\n#DLQ --gpus 2 --time 1h\nprint()\n")
    spec, _ = spec_of(path, ["--lr", "0.1"], {"gpus": 8})
    assert (spec.gpu_count, spec.command) == (8, ("--lr", "0.1"))
    assert to_message(spec).time_limit_duration.seconds == 3600


@pytest.mark.parametrize(
    ("source", "words", "field", "told"),
    [
        (["true"], {"gpus": "x"}, "gpus", "'x' is not a number of GPUs"),
        (["true"], {"gpux": 1}, "gpux", "did you mean 'gpus'?"),
        (["true"], {"gpus": 5, "nodes": 2}, "gpus", "cannot be divided evenly"),
        (["true"], {"env": ["=1"]}, "env", ""),
        (["true"], {"priority": 3}, "priority", "not supported by this version"),
        ({"command": ["true"], "resources": {"gpu": -4}}, {}, "resources.gpu", "resources.gpu"),
        ({"comand": ["true"]}, {}, "comand", "did you mean 'command'?"),
        ([], {}, "source", "the command is empty"),
        ("there/is/none.py", {}, "there/is/none.py", "no such file"),
        (len, {}, "source", "a function"),
    ],
)
def test_a_bad_word_is_named(
    source: object, words: dict[str, object], field: str, told: str
) -> None:
    with pytest.raises(dlq.InvalidRequest) as refused:
        asked(source, **words)
    assert refused.value.field == field
    assert told in str(refused.value)
    assert str(refused.value).count(f"{field}: {field}:") == 0


def test_import_dlq_loads_next_to_nothing() -> None:
    program = (
        "import json, sys; before = set(sys.modules); import dlq; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert set(json.loads(done.stdout)) <= ALLOWED, done.stderr


def test_every_name_of_dlq_is_there_and_typed() -> None:
    stub = Path(dlq.__file__).with_name("__init__.pyi").read_text()
    named = {line.rpartition(" as ")[2] for line in stub.splitlines()}
    told: list[str] = vars(dlq)["__all__"]
    assert named == {*told, "aio"}
    for name in told:
        assert inspect.getdoc(getattr(dlq, name)), name
    assert named <= set(dir(dlq))
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        dlq.conect  # type: ignore[attr-defined]  # noqa: B018
