"""Lists of hosts and names of files, as Slurm writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text.hostlist import compress_hostlist, expand_hostlist
from dlq_compat import hostlist

HOSTS = st.lists(st.from_regex(r"[a-c]{1,2}-?[0-9]{0,3}", fullmatch=True), min_size=1, unique=True)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],login", ["n1", "n2", "n3", "n7", "login"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
        ("n[001]-ib", ["n001-ib"]),
    ],
)
def test_a_list_is_expanded_in_order(text: str, hosts: list[str]) -> None:
    assert hostlist.expand(text) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n1]", "n[3-1]", "n[a-b]", "n[1-999999]", "n[[1]]"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        hostlist.expand(text)


@given(HOSTS)
def test_short_and_long_form_say_the_same(hosts: list[str]) -> None:
    assert sorted(hostlist.expand(hostlist.compress(hosts))) == sorted(hosts)


@given(HOSTS)
def test_jobs_and_commands_read_each_others_lists(hosts: list[str]) -> None:
    ours = expand_hostlist(hostlist.compress(hosts))
    assert sorted(ours) == sorted(hostlist.expand(compress_hostlist(hosts))) == sorted(hosts)
