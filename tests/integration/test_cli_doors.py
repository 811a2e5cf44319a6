"""The CLI at the doors of a real master: identity, roles and refusals as they are, a fake loop
behind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dlq_client.line.identity import Identity, save_identity
from dlq_common.identity.pki import Authority, Role, parse_identity
from support.cli_run import Dlq, Said
from support.rpc_house import RpcHouse, rpc_house

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as running:
        yield running


class Person:
    """Somebody with an identity directory, who types commands."""

    def __init__(
        self,
        house: RpcHouse,
        tmp_path: Path,
        name: str,
        role: Role,
        authority: Authority | None = None,
    ) -> None:
        key, certificate = house.certificate(name, role, authority=authority)
        dates = parse_identity(certificate)
        home = tmp_path / f"home-{name}"
        save_identity(
            home,
            Identity(
                key=key, certificate=certificate, ca=house.authority.certificate_pem(),
                address=f"127.0.0.1:{house.server.api_port}", cluster="lab", user=name,
                role=role.value, issued_s=dates.issued_s, expires_s=dates.not_after_s,
            ),
        )  # fmt: skip
        self._dlq = Dlq(home)

    async def types(self, *arguments: str, patience_s: float = 5.0) -> Said:
        """One command, while the master's loop goes on in this thread."""
        return await asyncio.to_thread(self._dlq, *arguments, patience_s=patience_s)


async def test_a_user_submits_looks_holds_and_cancels(house: RpcHouse, tmp_path: Path) -> None:
    alice = Person(house, tmp_path, "alice", Role.USER)
    said = await alice.types("submit", "--parsable", "-J", "mine", "-D", "/data", "--", "true")
    job_id = said.out.strip()
    assert (said.code, job_id.isdigit()) == (0, True)
    shown = json.loads((await alice.types("show", "mine", "--json")).out)["jobs"][0]
    assert (shown["job_id"], shown["user"], shown["name"]) == (job_id, "alice", "mine")
    assert shown["spec"]["working_directory"] == "/data"
    assert (await alice.types("hold", job_id)).out == f"job {job_id}: held (user)\n"
    assert (await alice.types("release", job_id)).code == 0
    assert (await alice.types("why", job_id)).code == 0
    assert (await alice.types("cancel", job_id)).code == 0
    assert (await alice.types("wait", job_id)).code == 1


async def test_another_users_job_is_not_there_and_operators_see_all(
    house: RpcHouse, tmp_path: Path
) -> None:
    alice = Person(house, tmp_path, "alice", Role.USER)
    bob = Person(house, tmp_path, "bob", Role.USER)
    olga = Person(house, tmp_path, "olga", Role.OPERATOR)
    job_id = (await alice.types("submit", "--parsable", "--", "true")).out.strip()
    for command in ("show", "why", "cancel", "hold", "wait", "status"):
        assert (await bob.types(command, job_id)).code == 3, command
    seen = await bob.types("status", "-a", "-o", "id,name,user,state,gpus,queue,where")
    assert (seen.code, seen.out.splitlines()[1].split()) == (
        0,
        [job_id, "alice", "queued", "1", "default"],
    )
    (told,) = json.loads((await bob.types("status", "-a", "--json")).out)["jobs"]
    known = {key for key, value in told.items() if value is not None}
    assert known == {
        "job_id", "user", "state", "stored_state", "resources", "submit_time", "run_time_s", "redacted", "queue", "nodes",  # noqa: E501
    }  # fmt: skip
    assert {key for key, value in told["resources"].items() if value is not None} == {"gpu_count"}
    assert (await bob.types("status", "-a", "-w")).code == 2
    house.control.published.others_shown = "hidden"
    assert (await bob.types("status", "-a")).code == 4
    assert (await bob.types("hold", "--admin", job_id)).code in (3, 4)
    assert (await olga.types("status", "-a", "-q")).out == f"{job_id}\n"
    assert (await olga.types("status", "-q", job_id)).out == f"{job_id}\n"


async def test_administration_is_not_for_users(house: RpcHouse, tmp_path: Path) -> None:
    alice = Person(house, tmp_path, "alice", Role.USER)
    for line in (
        "admin token create", "admin token list", "admin user list", "admin user del bob -y",
        "admin node drain gpu01 --reason x -y", "admin node fence gpu01 --reason x -y",
        "admin node forget gpu01 -y", "admin node clear gpu01", "admin node unquarantine gpu01",
    ):  # fmt: skip
        assert (await alice.types(*line.split())).code == 4, line
    assert (await alice.types("nodes")).code == 0


async def test_a_certificate_of_another_ca_opens_nothing(house: RpcHouse, tmp_path: Path) -> None:
    stranger = Authority.create("lab", house.clock.now_s())
    mallory = Person(house, tmp_path, "alice", Role.ADMIN, authority=stranger)
    assert (await mallory.types("status", patience_s=0.2)).code == 69


async def test_what_the_master_refuses_names_the_field(house: RpcHouse, tmp_path: Path) -> None:
    alice = Person(house, tmp_path, "alice", Role.USER)
    said = await alice.types("submit", "--max-restarts", "5000", "--", "true")
    assert said.code == 2
    assert "retry.max_restart_count" in said.err


async def test_test_only_says_where_the_environment_comes_from(
    house: RpcHouse, tmp_path: Path
) -> None:
    alice = Person(house, tmp_path, "alice", Role.USER)
    spec = tmp_path / "job.toml"
    spec.write_text('command = "true"\n[env]\nB = "2"\n')
    said = await alice.types("submit", "--test-only", "--env", "A=1", str(spec))
    assert f"environment: A, B  (--env, {spec}:2)" in said.out
    said = await alice.types("submit", "--test-only", "--", "true")
    assert "environment: nothing of your shell  (default)" in said.out


async def test_test_only_keeps_nothing(house: RpcHouse, tmp_path: Path) -> None:
    alice = Person(house, tmp_path, "alice", Role.USER)
    said = await alice.types("submit", "--test-only", "-G", "2", "--", "true")
    assert said.code == 0
    assert "gpus:        2 on any nodes  (--gpus)" in said.out


async def test_an_admin_makes_a_team_and_its_members_see_it(
    house: RpcHouse, tmp_path: Path
) -> None:
    root = Person(house, tmp_path, "root", Role.ADMIN)
    alice = Person(house, tmp_path, "alice", Role.USER)
    said = await root.types("admin", "team", "set", "vision", "--gpus", "8", "--no-borrow")
    assert (said.code, said.out) == (
        0,
        "team vision: gpu quota 8, gpu limit 8, members nobody\n",
    )
    assert "no teams" in (await alice.types("teams")).err
    added = ("alice", "--limit", "4", "--share", "2", "--default")
    assert (await root.types("admin", "team", "add-user", "vision", *added)).code == 0
    team = json.loads((await alice.types("teams", "--json")).out)["teams"][0]
    assert (team["gpu_quota"], team["gpu_limit"], team["running_job_limit"]) == (8, 8, None)
    (member,) = team["members"]
    assert (member["user"], member["gpu_limit"], member["share"]) == ("alice", 4, 2.0)
    assert member["is_default"]
    assert (await root.types("admin", "team", "set", "vision", "--limit", "none")).code == 0
    kept = json.loads((await root.types("teams", "vision", "--json")).out)["teams"][0]
    assert (kept["gpu_quota"], kept["gpu_limit"]) == (8, None), "the rest is as it was"
    assert kept["members"][0]["gpu_limit"] == 4
    for wrong, words in (
        (("set", "vision", "--gpus", "many"), "--gpus: 'many' is not a whole number or none"),
        (("set", "vision", "--limit", "4"), "a limit of 4 GPUs is below the quota of 8"),
        (("set", "new", "--no-borrow"), "--no-borrow needs a quota"),
        (("set", "vision", "--limit", "9", "--borrow"), "say the same"),
    ):
        refused = await root.types("admin", "team", *wrong)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    assert (await root.types("admin", "team", "add-user", "nlp", "bob")).code == 3
    assert (await root.types("admin", "team", "remove-user", "vision", "bob")).code == 3
    assert (await root.types("admin", "team", "remove-user", "vision", "alice")).code == 0
    assert (await root.types("admin", "team", "remove", "vision", "-y")).code == 0
    assert (await alice.types("admin", "team", "set", "mine", "--gpus", "8")).code == 4


async def test_an_operator_reserves_nodes_and_lets_them_go(house: RpcHouse, tmp_path: Path) -> None:
    olga = Person(house, tmp_path, "olga", Role.OPERATOR)
    said = await olga.types(
        "admin", "reserve", "gpu[01-02]", "--from", "2100-12-01T08:00Z", "--for", "4h",
        "--reason", "fans",
    )  # fmt: skip
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("reserved m1: gpu[01-02], 2100-12-01T08:00:00")
    (listed,) = json.loads((await olga.types("admin", "reservation", "list", "--json")).out)[
        "reservations"
    ]
    assert (listed["end_time"][:19], listed["reason"]) == ("2100-12-01T12:00:00", "fans")
    for wrong, words in (
        (("gpu01",), "Give --to or --for"),
        (("gpu01", "--to", "18:00", "--for", "1h"), "Give --to or --for"),
        (("gpu01", "--for", "soon"), "--for: "),
        (("gpu01", "--from", "yesterday", "--for", "1h"), "--from: "),
        (("gpu[01", "--for", "1h"), "gpu[01"),
        (("--for", "1h"), "Name some, or say --all"),
        (("gpu01", "--all", "--for", "1h"), "Name some, or say --all"),
    ):
        refused = await olga.types("admin", "reserve", *wrong)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    assert (await olga.types("admin", "reservation", "cancel", "m1", "-y")).code == 0
    said = await olga.types(
        "admin", "reserve", "--all", "--from", "2100-12-01T08:00Z", "--for", "4h"
    )
    assert ": gpu[01-02], 2100-12-01" in said.out, said
    alice = Person(house, tmp_path, "alice", Role.USER)
    assert (await alice.types("admin", "reserve", "gpu01", "--for", "1h")).code == 4
    assert (await alice.types("admin", "reservation", "list")).code == 0
