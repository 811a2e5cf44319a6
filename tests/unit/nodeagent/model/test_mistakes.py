"""Whose fault a failed start is: the tables that decide between an exit code and a lost attempt."""

import errno

import pytest

from dlq_nodeagent.model.mistakes import exit_code_of, start_exit_code


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [
        (errno.ENOENT, 127),
        (errno.EACCES, 126),
        (errno.ENOEXEC, 126),
        (errno.E2BIG, 126),
        (errno.EDQUOT, 126),
        (errno.ENOSPC, None),
        (errno.EIO, None),
        (errno.ESTALE, None),
        (errno.ENOMEM, None),
    ],
)
def test_a_host_that_is_full_or_broken_is_not_its_users_mistake(
    number: int, exit_code: int | None
) -> None:
    assert exit_code_of(number) == exit_code


@pytest.mark.parametrize("stage", ["chdir", "exec", "interpreter"])
def test_what_the_user_named_is_the_users(stage: str) -> None:
    assert start_exit_code(stage, errno.ENOENT) == 127


@pytest.mark.parametrize("stage", ["plan", "identity", "shim", "contact", "log", "fork", "cgroup"])
def test_every_other_step_of_the_shim_is_the_hosts(stage: str) -> None:
    assert start_exit_code(stage, errno.ENOENT) is None
