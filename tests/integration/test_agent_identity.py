"""Joining and renewing over real TLS."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.clock import SteadyClock
from dlq_common.errors import Unauthenticated, Unavailable
from dlq_common.identity.files import StoredIdentity, load_identity, save_identity
from dlq_common.identity.join_token import JoinTokenText
from dlq_common.identity.pki import Role, fingerprint, parse_identity
from dlq_nodeagent.line import identity as line_identity
from dlq_nodeagent.line.channel import Channels
from dlq_nodeagent.line.identity import Joined, RenewalWish, join, renew_if_due, stored_address
from support.fake_clock import FakeClock
from support.stub_master import StubMaster

pytestmark = pytest.mark.integration
DAY_S = 86_400.0


@pytest.fixture
def master() -> Iterator[StubMaster]:
    with StubMaster() as stub:
        yield stub


def join_now(master: StubMaster, state_dir: Path, token: str | None = None) -> Joined:
    """Join as node-a."""
    return asyncio.run(
        join(
            f"127.0.0.1:{master.join_port}",
            token or master.token(),
            wished_node_id="node-a",
            state_dir=state_dir,
        )
    )


def channels(master: StubMaster, state_dir: Path) -> Channels:
    """Channels with the stored identity."""
    return Channels(f"127.0.0.1:{master.api_port}", state_dir)


def test_a_node_that_joined_holds_a_certificate_of_its_own(
    master: StubMaster, tmp_path: Path
) -> None:
    joined = join_now(master, tmp_path / "agent")
    assert joined.api_address == f"127.0.0.1:{master.api_port}"
    assert stored_address(tmp_path / "agent") == joined.api_address
    identity = load_identity(tmp_path / "agent")
    assert identity is not None
    who = parse_identity(identity.certificate)
    assert (who.name, who.role, who.cluster) == ("node-a", Role.NODE, "bench")
    assert (tmp_path / "agent" / "identity.key").stat().st_mode & 0o777 == 0o600


def test_a_join_that_was_not_answered_is_repeated_with_the_same_key(
    master: StubMaster, tmp_path: Path
) -> None:
    wrong = JoinTokenText("t2", "x" * 43, fingerprint(master.authority.certificate_pem())).text()
    with pytest.raises(Unauthenticated):
        join_now(master, tmp_path, wrong)
    kept = (tmp_path / "join-request.json").read_text()
    assert (tmp_path / "join-request.json").stat().st_mode & 0o777 == 0o600
    join_now(master, tmp_path)
    identity = load_identity(tmp_path)
    assert identity is not None
    assert identity.key.decode().replace("\n", "\\n") in kept
    assert not (tmp_path / "join-request.json").exists()


def test_a_master_that_is_not_there_is_said_to_be_away(tmp_path: Path) -> None:
    with StubMaster() as gone:
        token, port = gone.token(), gone.join_port
    with pytest.raises(Unavailable):
        asyncio.run(join(f"127.0.0.1:{port}", token, wished_node_id="node-a", state_dir=tmp_path))


def test_a_certificate_is_renewed_at_two_thirds_of_its_life(
    master: StubMaster, tmp_path: Path
) -> None:
    join_now(master, tmp_path)
    before = load_identity(tmp_path)
    now_s = master.clock.now_s()
    early = FakeClock(now_s + 19 * DAY_S)
    assert not asyncio.run(renew_if_due(channels(master, tmp_path), early))
    due = FakeClock(now_s + 21 * DAY_S)
    assert asyncio.run(renew_if_due(channels(master, tmp_path), due))
    after = load_identity(tmp_path)
    assert before is not None
    assert after is not None
    assert after.key != before.key
    assert parse_identity(after.certificate).name == "node-a"
    assert master.renewals == 1


def test_a_renewal_for_somebody_else_is_refused_and_the_old_identity_stays(
    master: StubMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_now(master, tmp_path)
    before = load_identity(tmp_path)
    sign_node = master.authority.sign_node
    monkeypatch.setattr(
        master.authority,
        "sign_node",
        lambda request, _name, now_s: sign_node(request, "node-b", now_s),
    )
    due = FakeClock(master.clock.now_s() + 21 * DAY_S)
    with pytest.raises(Unauthenticated):
        asyncio.run(renew_if_due(channels(master, tmp_path), due))
    assert load_identity(tmp_path) == before


def test_a_renewal_while_the_master_is_away_is_tried_again_later(tmp_path: Path) -> None:
    with StubMaster() as gone:
        join_now(gone, tmp_path)
        due = FakeClock(gone.clock.now_s() + 21 * DAY_S)
    with pytest.raises(Unavailable):
        asyncio.run(renew_if_due(channels(gone, tmp_path), due))


async def test_a_full_disk_puts_a_renewal_off_and_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StubMaster() as master:
        await asyncio.to_thread(join_now, master, tmp_path)
        due = FakeClock(master.clock.now_s() + 21 * DAY_S)
        full, renewed = iter([True, False]), asyncio.Event()

        def save(directory: Path, identity: StoredIdentity) -> None:
            if next(full):
                raise OSError(errno.ENOSPC, "No space left on device")
            save_identity(directory, identity)
            renewed.set()

        monkeypatch.setattr(line_identity, "save_identity", save)
        monkeypatch.setattr(line_identity, "_RENEW_LOOK_S", 0.01)
        keeping = asyncio.create_task(line_identity.keep_renewed(channels(master, tmp_path), due))
        await asyncio.wait_for(renewed.wait(), 30.0)
        keeping.cancel()
        assert master.renewals == 2


def test_the_masters_wish_renews_at_once_and_the_session_is_dialled_anew(
    master: StubMaster, tmp_path: Path
) -> None:
    join_now(master, tmp_path)
    lines, dialled = channels(master, tmp_path), []

    async def scene() -> None:
        wish, known = RenewalWish(lines), lines.trust_digest()
        heard = asyncio.Event()

        def dial_anew() -> None:
            dialled.append(1)
            heard.set()

        keeping = asyncio.create_task(
            line_identity.keep_renewed(lines, SteadyClock(), wish, dial_anew)
        )
        for reply in (
            wire.HeartbeatReply(),
            wire.HeartbeatReply(trust_digest=known),
        ):
            wish.hear(reply)
        await asyncio.sleep(0)
        assert master.renewals == 0
        wish.hear(wire.HeartbeatReply(trust_digest="another"))
        async with asyncio.timeout(60):
            await heard.wait()
            heard.clear()
            wish.hear(wire.HeartbeatReply(trust_digest=known, renewal_wanted=True))
            await heard.wait()
        keeping.cancel()
        await asyncio.wait([keeping])

    asyncio.run(scene())
    assert (master.renewals, dialled) == (2, [1, 1])
