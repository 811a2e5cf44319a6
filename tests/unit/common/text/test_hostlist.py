"""Host lists: brackets expand, names fold, and folding loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text.hostlist import (
    compress_hostlist,
    expand_hostlist,
    split_outside_brackets,
)

HOST = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z][a-z0-9]{0,3})?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[1,3,9-10]", ["gpu1", "gpu3", "gpu9", "gpu10"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[08-11].lab,login", ["gpu08.lab", "gpu09.lab", "gpu10.lab", "gpu11.lab", "login"]),
        ("a,b,a", ["a", "b"]),
    ],
)
def test_brackets_expand_in_the_order_written(text: str, hosts: list[str]) -> None:
    assert expand_hostlist(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "gpu[",
        "gpu]",
        "gpu[]",
        "gpu[3-1]",
        "gpu[a-b]",
        "gpu[1-999999999]",
        "a b",
        "$(id)",
        "../x",
        "-x",
        "a\nb",
        "n[1-999]m[1-999]",
        "n[1-2,",
        "a,,b",
        "n[[1]]",
    ],
)
def test_what_is_not_a_host_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        expand_hostlist(text)


def test_names_fold_by_prefix_and_width() -> None:
    assert compress_hostlist(["gpu03", "gpu01", "gpu02", "gpu05"]) == "gpu[01-03,05]"
    assert compress_hostlist(["n9", "n10"]) == "n10,n9"
    assert compress_hostlist(["login", "gpu01", "gpu01"]) == "gpu01,login"
    assert compress_hostlist([]) == ""


@given(st.lists(HOST, min_size=1, max_size=40))
def test_a_folded_list_expands_to_the_same_hosts(hosts: list[str]) -> None:
    assert sorted(expand_hostlist(compress_hostlist(hosts))) == sorted(set(hosts))


@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 5))
def test_a_run_of_numbers_keeps_its_zeros(first: int, count: int, width: int) -> None:
    hosts = [f"gpu{number:0{width}d}" for number in range(first, first + count + 1)]
    assert sorted(expand_hostlist(compress_hostlist(hosts))) == sorted(hosts)


@pytest.mark.parametrize(
    "text",
    [
        "," * 300_000,
        "x" + ",a" * 300_000 + "[",
        "a[" + "0-99999," * 300_000 + "1]",
        "a" + "[0-99999]" * 300_000,
        ",".join(["a[0-99999]"] * 300_000),
    ],
    ids=["commas", "words", "ranges", "brackets", "repeated"],
)
def test_a_text_of_somebody_else_costs_no_more_than_its_length(text: str) -> None:
    """Each of them took hours, or all memory, of a server that reads it."""
    with pytest.raises(ValueError, match="host") as refused:
        expand_hostlist(text)
    assert len(str(refused.value)) < 300


def test_commas_in_brackets_part_nothing() -> None:
    assert split_outside_brackets("12_[0,2],13,,a[1") == ["12_[0,2]", "13", "", "a[1"]
    assert split_outside_brackets("") == [""]


@given(st.text(alphabet="gpu[]-,0123456789. \n", max_size=24))
def test_any_text_is_a_host_list_or_a_value_error(text: str) -> None:
    try:
        hosts = expand_hostlist(text)
    except ValueError:
        return
    assert hosts
    assert not any(set(host) & set("[], \n") for host in hosts)
