"""Tasks, GPUs and cores of sbatch's options, against what Slurm 22.05 made of the same lines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.input_variables import options_of, own_environment
from dlq_cli.slurm.sbatch import spec_of
from dlq_cli.spec.slurm.decisions import DECISIONS, OptionKind, decision
from dlq_cli.spec.slurm.layout import TaskLayout, task_layout
from dlq_cli.spec.slurm.request import ALL_MEMORY
from dlq_cli.spec.slurm.sbatch import KNOWN, InvalidDirective, read_options, read_words
from dlq_cli.spec.validate import Spec
from dlq_cli.spec.values.given import Notes
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.table.gang import TASKS, TASKS_PER_NODE
from dlq_common.job_fields.table.gpus import NODELIST
from dlq_common.job_fields.table.job import QUEUE
from dlq_common.job_fields.table.order import HOLD, NO_REQUEUE, TIME_LIMIT
from dlq_common.text.arrays import parse_array

RECORD = Path(__file__).parents[3] / "data" / "slurm_submissions.json"
LINES: Mapping[str, Any] = json.loads(RECORD.read_text())["lines"]
_OF_TASKS = re.compile(r"(-[nNcGO]\b|--(ntasks|nodes|gpus|gres|cpus-per|mem|mincpus)).*", re.ASCII)
LAID_OUT = [
    line for line, made in LINES.items() if _OF_TASKS.match(line) and made["code"] == 0
    and "job" in made and ":" not in line.split()
]  # fmt: skip
# Slurm gives them, and dlq refuses them by name.
REFUSED = {
    "-G 3 -N 2": "3 GPUs cannot be divided evenly over 2 nodes",
    "--gpus-per-task=2 -n 3 -N 2": "cannot be divided evenly over 2 nodes",
    "--gres=gpu:1,gpu:2": "GPUs are named twice",
}
# Nodes have as many cores each here, so there may be some more than Slurm gives. Slurm's first node
# gets as many tasks as it has free cores: `-N 2 -n 5` is 4+1, and 3+2 as here where three are free.
# Of `-N 1-2` Slurm gives as many nodes as are free, and dlq the fewest.
MORE_CORES = {
    "-N 1-2": 1,
    "-N 2 -n 3": 4, "-N 2 -n 3 -c 4": 16, "-N 2 -n 5": 6, "-N 1-2 -n 3": 3,
    "-N 2 -n 4 --ntasks-per-node=3": 4,
}  # fmt: skip


def laid_out(line: str) -> TaskLayout:
    options, _ = read_words(line.split(), "sbatch")
    return task_layout({option.name: option.value for option in options})


# Measured on Slurm 22.05 with two nodes: the line, and its nodes.
NAMED_NODES = {
    "-w a1,a2": 2, "-w a[1-2] -n 3": 2, "-w a[1-2] -N 1-2": 2, "-w a1,a1": 1, "-w a1,a2 -n 1": 1,
    "-w a1,a2 --ntasks-per-node=2": 2, "-w a1 -N 2": 2, "-w a1,a2 --gres=gpu:1": 2, "-w a1": 1,
    "-w a1,a2 -n 3 --ntasks-per-node=2": 2, "-w a1,a2 -n 4 -N 1-2": 2,
}  # fmt: skip


def sbatch(*words: str, lenient: bool = False) -> tuple[Spec, Notes]:
    """What sbatch would queue, and its notes."""
    notes = Notes()
    options, rest = read_words([*words, "--wrap=true"], "sbatch")
    return spec_of(options, rest, notes, lenient=lenient), notes


def asked_or_refused(*words: str) -> Spec | InvalidRequest:
    try:
        return sbatch(*words)[0]
    except InvalidRequest as error:
        return error


def test_the_record_holds_enough() -> None:
    assert len(LAID_OUT) >= 60


@pytest.mark.parametrize("line", LAID_OUT)
def test_the_layout_of(line: str) -> None:
    if line in REFUSED:
        with pytest.raises(InvalidRequest, match=re.escape(REFUSED[line])):
            laid_out(line)
        return
    made, layout = LINES[line], laid_out(line)
    told = made.get("env", {})
    if "SLURM_NTASKS" in told:
        assert layout.tasks == int(told["SLURM_NTASKS"])
    if "SLURM_GPUS_ON_NODE" in told:
        here = layout.gpus // (layout.nodes or 1)
        nodes = int(told["SLURM_NNODES"])
        # Without nodes Slurm's first one has as many as it can; its GPUs are even only if asked.
        if nodes == 1 or "per-node" in line or "--gres" in line:
            assert here == int(told["SLURM_GPUS_ON_NODE"])
    if not layout.gpus:
        assert layout.cores == MORE_CORES.get(line, int(made["job"]["NumCPUs"]))
    if layout.nodes is not None and made["job"]["JobState"] == "COMPLETED":
        assert line in MORE_CORES or layout.nodes == int(made["job"]["NumNodes"])


SOME = {
    "-n": st.integers(1, 200), "-N": st.integers(1, 8), "-c": st.integers(1, 16),
    "--ntasks-per-node": st.integers(1, 16), "-G": st.integers(0, 64),
    "--gpus-per-node": st.integers(0, 8), "--gpus-per-task": st.integers(0, 4),
    "--ntasks-per-gpu": st.integers(1, 4), "--cpus-per-gpu": st.integers(1, 8),
}  # fmt: skip


@given(asked=st.fixed_dictionaries({}, optional=SOME))
def test_any_options_are_refused_by_name_or_lose_nothing(asked: dict[str, int]) -> None:
    words = [word for name, number in asked.items() for word in (name, str(number))]
    made = asked_or_refused(*words)
    if isinstance(made, InvalidRequest):
        assert re.search(r"--\w", made.what)
        return
    nodes = made.node_count or 1
    tasks = made.of(TASKS) or (made.of(TASKS_PER_NODE) or 0) * nodes
    assert tasks == asked.get("-n", tasks)
    gpus = made.gpu_count
    assert gpus == (asked.get("-G") or gpus)
    assert gpus == (asked.get("--gpus-per-node", 0) * nodes or gpus)
    assert gpus == (asked.get("--gpus-per-task", 0) * tasks or gpus)
    assert made.core_count >= tasks * asked.get("-c", 1) or gpus


def test_a_partition_without_a_name_is_refused_as_by_slurm() -> None:
    with pytest.raises(SlurmSays) as caught:
        sbatch("--partition=")
    assert caught.value.lines[0] == "sbatch: error: invalid partition specified: (null)"


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("--time=")])
def test_a_time_of(line: str) -> None:
    made = LINES[line]
    if made["code"]:
        with pytest.raises(SlurmSays) as caught:
            sbatch(line)
        assert (caught.value.lines[0], caught.value.code) == (made["err"].strip(), made["code"])
        return
    if line == "--time=-5":
        with pytest.raises(SlurmSays):  # Slurm takes it for 8,000 years
            sbatch(line)
        return
    limit_s, said = sbatch(line)[0].of(TIME_LIMIT), made["job"]["TimeLimit"]
    if said == "UNLIMITED":
        assert limit_s is None
        return
    days, _, rest = said.rpartition("-")
    hours, minutes, seconds = map(int, rest.split(":"))
    told_s = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    assert limit_s == told_s  # rounded up to minutes, as in Slurm


def test_every_option_has_one_decision_and_a_reason() -> None:
    assert DECISIONS.keys() >= KNOWN
    assert all(each.why for each in DECISIONS.values() if each.kind is not OptionKind.TAKEN)


def test_what_changes_the_work_refuses_the_submission_unless_it_is_lenient() -> None:
    for words in (
        ["--exclusive=user"],
        ["-m", "arbitrary"],
        ["-L", "x:1"],
        ["--gpu-bind=per_task:1"],
    ):
        with pytest.raises(InvalidRequest) as caught:
            sbatch(*words)
        assert "--lenient" in caught.value.hint
        assert sbatch(*words, lenient=True)[1]
    for said in (["-L", "x"], ["--reboot"]):
        assert sbatch(*said, "--lenient")[1] == sbatch(*said, lenient=True)[1]


def test_what_has_no_effect_on_the_work_is_taken_quietly() -> None:
    words = ("--mail-type=END", "--mail-user=a", "--propagate", "-v", "--acctg-freq=30",
             "--hint=nomultithread", "--gpu-bind=closest", "-s", "--qos=normal", "--requeue",
             "--contiguous", "--switches=1", "--wckey=w", "--profile=none")  # fmt: skip
    assert sbatch(*words)[1] == []
    assert decision("--bogus").kind is OptionKind.REFUSED


def test_nobody_runs_a_job_as_somebody_else_however_lenient() -> None:
    with pytest.raises(InvalidRequest, match="runs as its submitter"):
        sbatch("--uid=0", lenient=True)


def test_no_requeue_is_kept_and_the_last_word_counts() -> None:
    assert sbatch("--no-requeue")[0].of(NO_REQUEUE)
    assert not sbatch("--no-requeue", "--requeue")[0].of(NO_REQUEUE)


def test_without_gpus_a_job_has_cores_and_with_them_it_has_none() -> None:
    made, _ = sbatch("-n", "4", "-c", "2", "--mem-per-cpu=2G")
    assert (made.gpu_count, made.core_count, made.node_count) == (0, 8, 1)
    made, _ = sbatch("-n", "4", "--gpus-per-task=1")
    assert (made.gpu_count, made.core_count) == (4, 0)
    for words in (["--gres=gpu:0"], ["--gpus=0"], []):
        assert sbatch(*words)[0].gpu_count == 0


def test_variables_are_options_below_those_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    monkeypatch.setenv("SBATCH_GPUS", "2")
    monkeypatch.setenv("SBATCH_NO_REQUEUE", "")
    monkeypatch.setenv("SBATCH_ACCOUNT", "")  # says nothing
    made, _ = sbatch("-G", "3")
    assert (made.of(TIME_LIMIT), made.gpu_count, made.of(NO_REQUEUE)) == (420, 3, True)
    assert "team" not in made.values
    names = [each.name for each in options_of({"SLURM_CLUSTERS": "a", "SBATCH_WAIT": "1"})]
    assert names == ["--clusters", "--wait"]


def test_files_of_a_script_may_be_variables() -> None:
    environ = {"SBATCH_OUTPUT": "o", "SBATCH_ERROR": "e", "SALLOC_OUTPUT": "s", "SLURM_ERROR": "r"}
    found = {each.name: each.value for each in options_of(environ)}
    assert found == {"--output": "o", "--error": "e"}
    assert not [*options_of(environ, "salloc"), *options_of(environ, "srun")]


def test_each_program_has_variables_of_its_own() -> None:
    environ = {
        "SALLOC_GPUS": "1",
        "SLURM_NNODES": "2",
        "SBATCH_ARRAY_INX": "1-2",
        "SLURM_WAIT": "9",
    }
    found = {
        program: [(each.name, each.value) for each in options_of(environ, program)]
        for program in ("sbatch", "salloc", "srun")
    }
    assert found == {
        "sbatch": [("--array", "1-2")], "salloc": [("--gpus", "1")], "srun": [("--nodes", "2")],
    }  # fmt: skip


def test_a_step_may_bind_its_tasks_to_gpus() -> None:
    made, notes = sbatch("--gpu-bind=single:1", "-G2", "-n2")
    assert (made.environment.get("SLURM_GPU_BIND"), notes) == ("single:1", [])


def test_a_job_submitted_by_a_job_does_not_inherit_its_numbers() -> None:
    shell = {"SLURM_ARRAY_TASK_ID": "3", "SLURMD_NODENAME": "n1", "SBATCH_GPUS": "1", "A": "b"}
    assert own_environment(shell) == {"A": "b"}


@pytest.mark.parametrize("line", NAMED_NODES)
def test_a_job_gets_as_many_nodes_as_it_names(line: str) -> None:
    assert laid_out(line).nodes == NAMED_NODES[line]


def test_fewer_nodes_than_are_named_are_refused_as_in_slurm() -> None:
    with pytest.raises(SlurmSays) as error:
        laid_out("-w a1,a2 -N 1")
    assert "invalid number of nodes (-N 2-1)" in str(error.value)
    assert error.value.code == 255


def test_nodes_that_are_all_named_need_no_word() -> None:
    spec, notes = sbatch("-w", "n1,n2")
    assert (spec.node_count, spec.of(NODELIST)) == (2, ("n1", "n2"))
    assert list(notes) == []
    _, notes = sbatch("-w", "n1,n2", "-n", "1")
    assert "it means only on these" in str(list(notes))


# Measured on Slurm 22.05: a script has them of a variable that is not set.
MAY_BE_EMPTY = (
    "--account=", "--array=", "--chdir=", "--constraint=", "--dependency=", "--dependency=0",
    "--error=", "--exclude=", "--gpus=", "--gpus-per-node=", "--gpus-per-task=", "--input=",
    "--job-name=", "--licenses=", "--nodelist=", "--output=", "--reservation=",
)  # fmt: skip


@pytest.mark.parametrize("word", MAY_BE_EMPTY)
def test_an_empty_word_asks_for_nothing_and_takes_an_earlier_one_back(word: str) -> None:
    spec, notes = sbatch(word)
    assert (spec, list(notes)) == (sbatch()[0], [])
    named = {"--gpus": "2", "--gpus-per-node": "2", "--dependency": "afterok:3", "--array": "1-3"}
    option = word.partition("=")[0]
    if option not in ("--input", "--licenses", "--reservation", "--gpus-per-task"):
        assert sbatch(f"{option}={named.get(option, 'n1')}", word)[0] == spec


def test_all_memory_of_a_node_that_is_asked_for_whole() -> None:
    assert sbatch("--mem=0", "--exclusive")[0] == sbatch("--exclusive")[0]


@pytest.mark.parametrize("word", ["--mem=0", "--mem=0G", "--mem=0g", "--mem=0MB", "--mem=0kb"])
def test_all_memory_of_a_node_is_asked_for_where_the_sizes_of_nodes_are_known(word: str) -> None:
    assert sbatch(word, "-c2")[0].origins["nodes"] == ALL_MEMORY
    assert sbatch(word, "-G1")[0].origins["nodes"] != ALL_MEMORY
    assert sbatch("-c2")[0].origins["nodes"] != ALL_MEMORY


@pytest.mark.parametrize(
    ("text", "nodes", "noted"),
    [("1-2", 1, True), ("-2", 1, True), ("0-2", 1, True), ("2-2", 2, False), ("02-2", 2, False)],
)
def test_of_a_range_of_nodes_a_job_gets_the_fewest_and_says_so(
    text: str, nodes: int, noted: bool
) -> None:
    spec, notes = sbatch("-N", text)
    assert spec.node_count == nodes
    assert [f"it gets {nodes}, the fewest" in note for note in notes] == [True] * noted


@pytest.mark.parametrize("word", ["--mem=", "--mem=x", "--mem-per-cpu=", "-N1-", "-N1,2"])
def test_a_word_that_is_no_number_ends_sbatch_with_slurms_code(word: str) -> None:
    with pytest.raises(SlurmSays) as error:
        sbatch(word)
    assert error.value.code == 255


def test_memory_is_rounded_up_to_mib_as_in_slurm() -> None:
    assert laid_out("--mem=4k").memory == "1024KiB"


@pytest.mark.parametrize(
    ("word", "mib"), [("4g", "4096"), ("4G", "4096"), ("4gb", "4096"), ("1500K", "2"), ("4k", "1")]
)
def test_a_script_finds_the_memory_that_its_job_has(word: str, mib: str) -> None:
    made, _ = sbatch(f"--mem={word}")
    assert made.environment["SLURM_MEM_PER_NODE"] == mib
    assert laid_out(f"--mem={word}").memory == f"{int(mib) << 10}KiB"


# Measured on Slurm 22.05.
ARRAYS = {
    "%2": "0%2", "%": "0", "0-3%": "0-3", "1-3,2": "1-3", ",1": "1", "1,": "1", "[1,3": "1,3",
    "1-3,2-5:2%7": "1-4%7", "0-3%2x": "0-3%2", "0-3%x": "0-3", "0%2%3": "0%2", "1-3%-1": "1-3",
}  # fmt: skip


@pytest.mark.parametrize("text", ARRAYS)
def test_odd_arrays_are_those_of_slurm(text: str) -> None:
    assert sbatch(f"--array={text}")[0].array == parse_array(ARRAYS[text])


@pytest.mark.parametrize("text", ["1-", "-1", "1:2", "a", "5-1", "1--3", "1-9:0", "0x1"])
def test_what_is_no_array_in_slurm_is_none_here(text: str) -> None:
    with pytest.raises(SlurmSays, match="Invalid job array specification"):
        sbatch(f"--array={text}")


@pytest.mark.parametrize("text", ["", ",", "=1", "NIL", "none"])
def test_words_that_name_no_variable_export_none(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("MINE", "1")
    environment = sbatch(f"--export={text}")[0].environment
    assert "MINE" not in environment
    assert environment["SLURM_GET_USER_ENV"] == "1"


def test_commas_in_quotes_belong_to_the_value() -> None:
    environment = sbatch("--export=A=\"1,2\",B=3,C='4,5'")[0].environment
    assert [environment[name] for name in "ABC"] == ['"1,2"', "3", "'4,5'"]


def test_all_alone_is_told_to_no_script() -> None:
    assert (
        not {"SLURM_EXPORT_ENV", "SLURM_GET_USER_ENV"}
        & sbatch("--export=all")[0].environment.keys()
    )
    environment = sbatch("--export=ALL,X=1")[0].environment
    assert environment["SLURM_EXPORT_ENV"] == "ALL,X=1"
    assert environment["SLURM_GET_USER_ENV"] == "1"


@pytest.mark.parametrize("text", ["FOO", "", ","])
def test_a_kind_of_mail_that_slurm_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(SlurmSays) as error:
        sbatch(f"--mail-type={text}")
    assert error.value.code == 255


@pytest.mark.parametrize("text", ["END,FOO", "end,fail", "none", "TIME_LIMIT_90"])
def test_a_kind_of_mail_that_slurm_knows_is_taken(text: str) -> None:
    assert sbatch(f"--mail-type={text}")[0] == sbatch()[0]


def test_letters_may_stand_behind_a_switch_in_one_word() -> None:
    spec, _ = sbatch("-HQn4")
    assert (spec.of(TASKS), spec.of(HOLD)) == (4, True)


def test_a_number_alone_is_a_dependency_on_its_end() -> None:
    assert sbatch("-d", "12")[0].depends_on == sbatch("-d", "afterany:12")[0].depends_on


def test_several_partitions_are_refused_by_name_unless_they_are_one() -> None:
    assert sbatch("-p", "gpu,gpu")[0].of(QUEUE) == "gpu"
    with pytest.raises(InvalidRequest, match="one queue here: name one of them"):
        sbatch("-p", "gpu,long")


def test_no_input_is_what_a_job_has() -> None:
    assert sbatch("-i", "/dev/null")[0] == sbatch("-i", "none")[0] == sbatch()[0]
    with pytest.raises(InvalidRequest, match="no stdin"):
        sbatch("-i", "data")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r"-J a\b", ["-J", "ab"]),
        (r'-J "a\"b"', ["-J", 'a"b']),
        (r"-J 'a\'b'", ["-J", "a'b"]),
        (r'-J "a b"c', ["-J", "a bc"]),
        (r"-J a'b c'd", ["-J", "ab cd"]),
        (r"-J a\#b # the name", ["-J", "a#b"]),
        (r'-J "#c"', ["-J", "#c"]),
        ("-J one\\", ["-J", "one"]),  # as people continue a line of a shell
        ("-J one \\", ["-J", "one"]),
        (r'--comment "\n" --array=', ["--comment", "n", "--array="]),
        ("-J nvcr.io#nvidia", ["-J", "nvcr.io#nvidia"]),  # to Slurm nvcr.io
    ],
)
def test_the_words_of_a_line_are_slurms(line: str, words: list[str]) -> None:
    options = list(read_options(f"#!/bin/sh\n#SBATCH {line}\n", "x"))
    assert [part for each in options for part in each.written.split(" ", 1)] == words


@pytest.mark.parametrize("line", ["#SBATCHX -J a", "#SBATCH -J a more", "#SBATCH nodes=2"])
def test_a_word_that_is_no_option_is_an_invalid_directive(line: str) -> None:
    with pytest.raises(InvalidDirective) as refused:
        list(read_options(f"#!/bin/sh\n{line}\n", "x"))
    said = refused.value.in_slurms_words()
    assert (said.code, said.lines[0][:56]) == (
        255, "sbatch: error: Invalid directive found in batch script: ",
    )  # fmt: skip


def test_a_limit_may_be_days_alone() -> None:
    assert sbatch("-G", "1", "-t", "1-")[0].of(TIME_LIMIT) == 86400


def test_no_blank_need_follow_the_mark() -> None:
    assert [each.name for each in read_options("#SBATCH-J a\n", "x")] == ["--job-name"]
