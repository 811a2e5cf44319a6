"""The CA changes under open lines: both roots count, then the former one counts for nothing."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from grpc import aio

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.errors import IllegalTransition
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.files import StoredIdentity, write_private, write_public
from dlq_common.identity.pki import Authority, Role, new_key_and_csr, parse_identity
from dlq_master.ca_commands import ca
from dlq_master.rpc.people.authorities import DONE, NEXT, SEEDS, Authorities, seed_of
from support.rpc_house import DEADLINE_S, RpcHouse, refusal

pytestmark = pytest.mark.integration
NOW_S = 1.8e9
OK, OUT = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


def founded(state_dir: Path, *, root: Authority | None = None) -> Authorities:
    first = root or Authority.create("lab", NOW_S)
    state_dir.mkdir(exist_ok=True)
    write_private(state_dir / "ca.key", first.key_pem())
    write_public(state_dir / "ca.crt", first.chain_pem())
    return Authorities(state_dir, "lab")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    house = RpcHouse(tmp_path, authority=founded(tmp_path / "ca"))
    await house.server.start()
    try:
        yield house
    finally:
        await house.close()


class Member:
    """Somebody with an identity, and the roots by which they know the master."""

    def __init__(self, house: RpcHouse, name: str, role: Role) -> None:
        self.house, self.name = house, name
        key, certificate = house.certificate(name, role)
        self.stored = StoredIdentity(key, certificate, house.authority.certificate_pem())

    def line(self) -> aio.Channel:
        """A new connection, with what the member has now."""
        mine = self.stored
        credentials = grpc.ssl_channel_credentials(mine.ca, mine.key, mine.certificate)
        channel = aio.secure_channel(
            f"127.0.0.1:{self.house.server.api_port}",
            credentials,
            options=[
                ("grpc.ssl_target_name_override", SERVER_NAME),
                ("grpc.enable_retries", 0),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.house._channels.append(channel)
        return channel

    async def wanted(self) -> bool:
        stub: Any = IdentityServiceStub(self.line())
        digest = hashlib.sha256(self.stored.ca).hexdigest()
        request = identity_wire.CheckIdentityRequest(trust_digest=digest)
        return bool((await stub.CheckIdentity(request, timeout=DEADLINE_S)).renewal_wanted)

    async def renew(self) -> None:
        made = new_key_and_csr(self.name)
        stub: Any = IdentityServiceStub(self.line())
        request = identity_wire.RenewCertificateRequest(certificate_request=made.request)
        answer = await stub.RenewCertificate(request, timeout=DEADLINE_S)
        self.stored = StoredIdentity(made.key, answer.certificate, answer.ca_certificates)

    async def calls(self, *metadata: tuple[str, str]) -> grpc.StatusCode:
        stub: Any = JobServiceStub(self.line())
        request = wire.ListJobsRequest(page_size=1)
        return await refusal(stub.ListJobs(request, timeout=DEADLINE_S, metadata=metadata))


def administration(member: Member) -> Any:
    return AdminServiceStub(member.line())


async def rotated(root: Member) -> Any:
    request = admin.RotateAuthorityRequest(request_id="rotate-1")
    return (await administration(root).RotateAuthority(request, timeout=DEADLINE_S)).authority


def finishing(root: Member, *, force: bool = False, request_id: str = "finish-1") -> Any:
    request = admin.FinishAuthorityRequest(request_id=request_id, force=force)
    return administration(root).FinishAuthority(request, timeout=DEADLINE_S)


async def words_of(call: Any) -> str:
    """Of a refusal."""
    with pytest.raises(aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return refused.value.details() or ""


async def test_both_count_until_it_is_finished_and_then_the_next_one_alone(
    house: RpcHouse,
) -> None:
    root, alice, bob = (
        Member(house, name, role)
        for name, role in (("root", Role.ADMIN), ("alice", Role.USER), ("bob", Role.USER))
    )
    assert not await alice.wanted()
    told = await rotated(root)
    assert told.changing
    assert told.next_fingerprint not in ("", told.fingerprint)
    assert await alice.wanted()
    assert await alice.calls() is OK, "the former certificate counts"
    for one in (root, alice):
        await one.renew()
        assert await one.calls() is OK
        assert not await one.wanted()
    assert await bob.calls() is OK
    for node in list(house.control.published.all_nodes):
        del house.control.published.all_nodes[node]
    assert "still used by user bob" in await words_of(finishing(root))
    stub: Any = JobServiceStub(bob.line())
    await bob.calls()
    watch = stub.WatchEvents(wire.WatchEventsRequest(cursor=-1), timeout=DEADLINE_S)
    done = await finishing(root, force=True, request_id="finish-2")
    assert not done.authority.changing
    assert done.authority.fingerprint == told.next_fingerprint
    assert await refusal(watch) is OUT
    assert await bob.calls() is grpc.StatusCode.UNAVAILABLE, "TLS refuses it already"
    assert await alice.calls() is OK
    assert await alice.wanted(), "to forget the former root"
    await alice.renew()
    assert not await alice.wanted()
    assert alice.stored.ca.count(b"BEGIN CERTIFICATE") == 1


async def test_a_node_that_has_not_come_is_named(house: RpcHouse) -> None:
    root = Member(house, "root", Role.ADMIN)
    await rotated(root)
    await root.renew()
    assert "node gpu01, node gpu02" in await words_of(finishing(root))


async def test_a_repeat_of_either_step_does_nothing_more(house: RpcHouse) -> None:
    root = Member(house, "root", Role.ADMIN)
    first, again = await rotated(root), await rotated(root)
    assert first.next_fingerprint == again.next_fingerprint
    await root.renew()
    for _ in range(2):
        done = await finishing(root, force=True)
        assert done.authority.fingerprint == first.next_fingerprint


async def test_a_browser_with_a_certificate_of_the_former_ca_is_refused(house: RpcHouse) -> None:
    root, portal = Member(house, "root", Role.ADMIN), Member(house, "portal", Role.WEB)
    hers = parse_identity(Member(house, "alice", Role.USER).stored.certificate)
    session = ActsFor("alice", "user", house.clock.now_s(), shown=f"{hers.serial}.{hers.issuer}")
    await rotated(root)
    await root.renew()
    await portal.renew()
    assert await portal.calls(*session.metadata()) is OK
    await finishing(root, force=True)
    assert await portal.calls(*session.metadata()) is OUT
    assert await portal.calls(*ActsFor("alice").metadata()) is OK


# --- files ----------------------------------------------------------------------------------------


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    first = founded(tmp_path)
    seeds = [seed_of(tmp_path, name) for name in ("pools", "checkpoints")]
    first.begin(NOW_S)
    again = Authorities(tmp_path, "lab")
    assert again.certificate_pem() == first.certificate_pem()
    assert again.fingerprints() == first.fingerprints()
    again.finish()
    last = Authorities(tmp_path, "lab")
    assert last.certificate_pem() == again.certificate_pem()
    assert last.next is None
    assert [seed_of(tmp_path, name) for name in ("pools", "checkpoints")] == seeds
    with pytest.raises(IllegalTransition):
        last.finish()


@pytest.mark.parametrize("written", [(), ("ca.key",), ("ca.key", "ca.crt")])
def test_a_master_that_dies_while_it_finishes_finishes_at_its_next_start(
    tmp_path: Path, written: tuple[str, ...]
) -> None:
    authorities = founded(tmp_path)
    authorities.begin(NOW_S)
    assert authorities.next is not None
    expected = authorities.next.certificate_pem()
    key = authorities.next.key_pem()
    (tmp_path / NEXT).rename(tmp_path / DONE)
    for name in written:
        write_private(tmp_path / name, key if name == "ca.key" else expected)
    assert Authorities(tmp_path, "lab").certificate_pem() == expected
    assert not (tmp_path / DONE).exists()


def test_a_change_is_not_begun_twice(tmp_path: Path) -> None:
    authorities = founded(tmp_path)
    authorities.begin(NOW_S)
    with pytest.raises(IllegalTransition, match="on its way"):
        authorities.begin(NOW_S)


def test_keys_on_disk_are_for_the_master_alone(tmp_path: Path) -> None:
    founded(tmp_path).begin(NOW_S)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in (NEXT, SEEDS)} == {0o600}


def test_an_offline_root_signs_the_authority_of_a_cluster(tmp_path: Path) -> None:
    authorities = founded(tmp_path / "state")
    config = tmp_path / "master.toml"
    config.write_text(f'[cluster]\nname = "lab"\nstate_dir = "{tmp_path}/state"\n')
    run = CliRunner()
    for words in (
        ("create-root", "--cluster", "lab", "--to", f"{tmp_path}/root"),
        ("request", "--config", f"{config}", "--out", f"{tmp_path}/lab.csr"),
        (
            "sign",
            "--root",
            f"{tmp_path}/root",
            f"{tmp_path}/lab.csr",
            "--out",
            f"{tmp_path}/lab.crt",
        ),
        ("import", "--config", f"{config}", f"{tmp_path}/lab.crt"),
    ):
        done = run.invoke(ca, words)
        assert done.exit_code == 0, done.output
    assert not (tmp_path / "state" / "ca.request.key").exists()
    authorities.begin(NOW_S)
    authorities.finish()
    root = (tmp_path / "root" / "ca.crt").read_bytes()
    assert authorities.certificate_pem() == root
    leaf = authorities.sign_node(new_key_and_csr("n").request, "gpu01", NOW_S)
    assert leaf.count(b"BEGIN CERTIFICATE") == 2
    assert Authorities(tmp_path / "state", "lab").certificate_pem() == root


def test_an_answer_to_another_request_is_not_imported(tmp_path: Path) -> None:
    founded(tmp_path / "state")
    config = tmp_path / "master.toml"
    config.write_text(f'[cluster]\nname = "lab"\nstate_dir = "{tmp_path}/state"\n')
    write_private(tmp_path / "state" / "ca.request.key", new_key_and_csr("x").key)
    root = Authority.create("lab", NOW_S, signs_authorities=True)
    answer = root.sign_intermediate(new_key_and_csr("y").request, NOW_S)
    (tmp_path / "lab.crt").write_bytes(answer)
    done = CliRunner().invoke(ca, ("import", "--config", f"{config}", f"{tmp_path}/lab.crt"))
    assert done.exit_code != 0
    assert "do not belong together" in done.output
