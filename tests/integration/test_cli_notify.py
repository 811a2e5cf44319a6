"""`dlq notify` at the door of a real master, a fake loop behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dlq_cli.commands.notify.notify import completed
from dlq_client.line.identity import Identity, save_identity
from dlq_common.identity.pki import Role, parse_identity
from support.cli_run import Dlq
from support.rpc_house import RpcHouse, rpc_house

pytestmark = pytest.mark.integration

URL = "https://hooks.example.org/T0/very-secret"


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as running:
        yield running


def dlq_of(house: RpcHouse, tmp_path: Path, name: str, role: Role) -> Dlq:
    key, certificate = house.certificate(name, role)
    dates, home = parse_identity(certificate), tmp_path / f"home-{name}"
    save_identity(
        home,
        Identity(
            key=key, certificate=certificate, ca=house.authority.certificate_pem(),
            address=f"127.0.0.1:{house.server.api_port}", cluster="lab", user=name,
            role=role.value, issued_s=dates.issued_s, expires_s=dates.not_after_s,
        ),
    )  # fmt: skip
    return Dlq(home)


async def test_a_rule_is_added_listed_tried_and_removed(house: RpcHouse, tmp_path: Path) -> None:
    alice = dlq_of(house, tmp_path, "alice", Role.USER)
    olga = dlq_of(house, tmp_path, "olga", Role.OPERATOR)

    async def types(who: Dlq, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        return await asyncio.to_thread(who, *words, stdin=stdin)

    said = await types(
        alice, "notify", "add", "webhook", "-", "--on", "failed,ended", "--with-output",
        "--gather", "10m", "--quiet", "22:00-07:00", "--zone", "Europe/Berlin",
        stdin=URL.encode() + b"\n",
    )  # fmt: skip
    code, out, err = said
    assert (code, out.splitlines()[0]) == (0, "rule n1: webhook, ended, failed")
    assert "dlq notify test n1" in err
    assert URL not in out + err
    code, out, _ = await types(alice, "notify", "list", "--json")
    (rule,) = json.loads(out)["rules"]
    assert (rule["address"], rule["with_output"], rule["gather_seconds"]) == (URL, True, 600)
    assert (rule["quiet_hours"], rule["time_zone"]) == ("22:00-07:00", "Europe/Berlin")
    assert len(rule["signing_key"]) > 30
    code, out, _ = await types(alice, "notify", "list")
    assert "hooks.example.org" in out
    assert "very-secret" not in out
    code, out, _ = await types(olga, "notify", "list", "--all", "--json")
    assert "very-secret" not in out
    assert json.loads(out)["rules"][0]["address"] is None
    assert (await types(alice, "notify", "list", "--all"))[0] == 4
    assert (await types(alice, "notify", "test", "n1"))[0] == 0
    assert (await types(alice, "notify", "remove", "n1"))[:2] == (0, "rule n1: removed\n")
    assert (await types(alice, "notify", "remove", "n1"))[0] == 3


@pytest.mark.parametrize(
    "words",
    [
        ("mail", "ada@example.org", "--on", "fialed"),
        ("mail", "not an address"),
        ("slack", "hooks.example.org"),
        ("mail", "ada@example.org", "--quiet", "10"),
        ("pigeon", "ada@example.org"),
    ],
)
def test_nonsense_is_refused_before_the_master_is_asked(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    said = Dlq(tmp_path)("notify", "add", *words)
    assert said.code == 2


def test_the_events_of_a_list_are_completed() -> None:
    assert completed("fai") == ["failed"]
    assert completed("failed,promise_") == [
        "failed,promise_at_risk",
        "failed,promise_safe",
        "failed,promise_missed",
    ]
