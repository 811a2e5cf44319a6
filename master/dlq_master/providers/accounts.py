"""In whose account the programs of providers run: never in one that owns a key.

The master's account owns the CA's key, the database, and the login socket's trust in it. A program
in the same account could read all of that, and become every user. So each pool with a program has
an account of its own. A master that is root becomes it; another one asks the helper of that account
(`runner`). A pool without either is refused when the master starts.

There is one exception, by name: `[renting] allow_master_account`, on a machine of one user, such as
that of a demo. It is refused where other hosts reach the master, and each start says what it means.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import replace

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_common.text.addresses import is_loopback
from dlq_master.control.pool_config import STATIC, PoolConfig, RentingConfig
from dlq_master.providers.calls import call
from dlq_master.providers.port import ProviderFailed

DEFAULT = "dlq-provider"  # made by deploy/sysusers.d/dlq-provider.conf
_LOOK_S = 20.0
_KEY = "renting.allow_master_account"
_DEVELOPING = "on a machine of one user, on loopback: [renting] allow_master_account = true"

log = get_logger("master.renting")


def with_accounts(
    pools: tuple[PoolConfig, ...], renting: RentingConfig, *, listens: str
) -> tuple[PoolConfig, ...]:
    """The pools, each with the account of its program. ConfigError, in words, for a pool whose
    program could only run in the master's account, or as root, and for an exception that is none.
    `listens`: the address of the API.
    """
    programs = [pool.name for pool in pools if pool.provider != STATIC]
    if renting.allow_master_account and programs:
        _check_exception(listens)
        log.warning(
            "programs_can_read_the_keys",
            pools=programs,
            cause=f"{_KEY}: they run in the account that owns the CA's key"
            + (", which is root" if os.geteuid() == 0 else ""),
        )
    return tuple(_with_accounts(pools, renting))


def _check_exception(listens: str) -> None:
    if not is_loopback(listens):
        told = f"{_KEY}: other hosts reach this master at {listens}, so it has more users than one"
        hint = f"systemctl enable --now {DEFAULT}.socket, or listen on 127.0.0.1"
        raise ConfigError(told, hint=hint, key=_KEY)


def _with_accounts(pools: tuple[PoolConfig, ...], renting: RentingConfig) -> Iterator[PoolConfig]:
    for number, pool in enumerate(pools):
        if pool.provider == STATIC or renting.allow_master_account:
            yield pool
        else:
            yield replace(pool, user=_account(pool, f"pools[{number}].user"))


def _account(pool: PoolConfig, key: str) -> str:
    user = pool.user or DEFAULT
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        if pool.user:
            raise ConfigError(f"{key}: there is no account {user}", key=key) from None
        uid = os.geteuid()
    if uid in (0, os.geteuid()):
        whose = "root" if uid == 0 else "the master, which owns the CA's key and the database"
        raise ConfigError(
            f"{key}: the program of pool {pool.name} would run in the account of {whose}",
            hint=f"name another account, such as {DEFAULT} (deploy/sysusers.d); {_DEVELOPING}",
            key=key,
        )
    if os.geteuid() != 0:
        _check_helper(pool, user, uid, key)
    return user


def _check_helper(pool: PoolConfig, user: str, uid: int, key: str) -> None:
    """The kernel lets only root become somebody else: the helper is that account already."""
    try:
        said = call(("id", "-u"), timeout_s=_LOOK_S, user=user, helper=pool.helper).strip()
    except ProviderFailed as error:
        raise ConfigError(
            f"{key}: the master is not root, and cannot have programs run as {user}: {error}",
            hint=f"systemctl enable --now dlq-provider.socket; {_DEVELOPING}",
            key=key,
        ) from None
    if said != str(uid):
        raise ConfigError(
            f"{key}: programs at {pool.helper} run as uid {said}, and not as {user} ({uid})",
            hint="User= of the unit behind that socket names the account",
            key=key,
        )
