"""The shipping process beside a master: it follows its commits, its end, and its successor."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_common.identity.pki import Authority
from dlq_master.app import _checked
from dlq_master.control.config import (
    BackupConfig,
    ClusterConfig,
    MasterConfig,
    ShippingConfig,
    StoreConfig,
)
from dlq_master.founding import Charter, found
from dlq_master.rpc.people.authorities import Authorities
from dlq_master.serving import read_authority
from dlq_master.shipping import child as child_module
from dlq_master.shipping.chain import rebuild
from dlq_master.shipping.child import MasterSuperseded, ShippingChild, refuse_superseded
from dlq_master.shipping.place import Directory
from dlq_master.shipping.shipper import SEALED
from dlq_master.shipping.status import ShippingStatus, read_status
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.backup import SEALED_KEY
from dlq_master.store.sqlite.halves import Writer
from support.shipped_site import content_of
from support.stored_values import a_job


def config_of(root: Path, *, same_disk: bool = True) -> MasterConfig:
    there = root / "there"
    there.mkdir(exist_ok=True)
    return MasterConfig(
        cluster=ClusterConfig("lab", root / "master"),
        backup=BackupConfig(ca_key="apart"),
        store=StoreConfig(),
        shipping=ShippingConfig(directory=str(there), every=0.05, same_disk=same_disk),  # type: ignore[arg-type]
    )


def found_site(root: Path) -> None:
    found(
        Charter(
            cluster="lab",
            state_dir=root / "master",
            config_path=root / "master.toml",
            checkpoint_root=root / "checkpoints",
            listen="127.0.0.1:1",
            join_listen="127.0.0.1:2",
            advertise="",
            login_socket=None,
            owner="",
        ),
        1.8e9,
    )


def present(root: Path) -> Callable[[], Authority]:
    """The authority of a site, which stays."""
    authority = read_authority(root / "master", "lab")
    return lambda: authority


async def until(root: Path, holds: Callable[[ShippingStatus], bool]) -> ShippingStatus:
    for _ in range(600):
        status = read_status(root / "master")
        if status is not None and holds(status):
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(f"never: {read_status(root / 'master')}")


def test_a_process_ships_until_the_master_ends_and_tells_of_a_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(child_module, "COMMAND", (sys.executable, *child_module.COMMAND[2:]))
    monkeypatch.setattr(child_module, "LOOK_S", 0.05)
    found_site(tmp_path)
    place = Directory(tmp_path / "there")

    async def story() -> None:
        writer = Writer(tmp_path / "master" / "dlq.db")
        shipping = ShippingChild(config_of(tmp_path), 3, present(tmp_path))
        await shipping.follow(writer)
        await until(tmp_path, lambda status: not status.failure)
        await writer.commit(Batch(jobs=[a_job(1)]))
        await shipping.stop()  # and what is left goes along
        made = rebuild(place, tmp_path / "rebuilt.db")
        assert any("jobs" in line for line in content_of(tmp_path / "rebuilt.db"))
        beat = json.loads((made.folder / "heartbeat").read_text())
        assert beat["stopped"] is True
        assert (made.folder / "ca.crt").exists()
        assert not (made.folder / "ca.key").exists()

        await shipping.follow(writer)  # a process that dies is followed by another one
        assert shipping._process is not None
        shipping._process.kill()
        ended = asyncio.Event()
        running = asyncio.create_task(shipping.run(ended.set))
        before = made.last.sequence
        await until(tmp_path, lambda status: status.sequence > before and not status.failure)
        assert place.create("e000000000009/owner", b'{"host": "vault"}')
        await asyncio.wait_for(ended.wait(), 30.0)
        await running
        with pytest.raises(MasterSuperseded, match="epoch 9, on vault"):
            shipping.refuse_superseded()
        await shipping.stop()
        writer.close()

    asyncio.run(story())


def test_the_key_of_a_new_ca_goes_along_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "LOOK_S", 0.01)
    found_site(tmp_path)
    state_dir, words = tmp_path / "master", tmp_path / "words"
    words.touch(mode=0o600)
    words.write_text("of the vault\n")
    settings = BackupConfig(ca_key="encrypted", passphrase_file=str(words))
    config = replace(config_of(tmp_path), backup=settings)
    both = Authorities(state_dir, "lab")

    def shipped() -> bytes:
        sealed = (state_dir / SEALED / SEALED_KEY).read_bytes()
        return Authority.unseal(sealed, b"of the vault")

    async def story() -> None:
        shipping = ShippingChild(config, 3, lambda: both.present)
        former = shipped()
        running = asyncio.create_task(shipping.run(lambda: None))
        both.begin(1.8e9)
        both.finish()
        for _ in range(3_000):
            if shipped() != former:
                break
            await asyncio.sleep(0.01)
        running.cancel()
        Authority.load(shipped(), (state_dir / "ca.crt").read_bytes())

    asyncio.run(asyncio.wait_for(story(), 60.0))


def test_a_directory_on_the_masters_own_disk_is_no_second_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(child_module, "COMMAND", (sys.executable, *child_module.COMMAND[2:]))
    found_site(tmp_path)

    async def story() -> None:
        writer = Writer(tmp_path / "master" / "dlq.db")
        config = config_of(tmp_path, same_disk=False)
        shipping = ShippingChild(config, 3, present(tmp_path))
        await shipping.follow(writer)
        status = await until(tmp_path, lambda status: bool(status.failure))
        assert "is on the disk of the master: is it mounted?" in status.failure
        await writer.commit(Batch(jobs=[a_job(1)]))  # and commits go on
        await shipping.stop()
        writer.close()

    asyncio.run(story())
    assert not any((tmp_path / "there").iterdir())


def test_a_master_without_a_successor_may_start(tmp_path: Path) -> None:
    refuse_superseded(tmp_path)


@pytest.mark.parametrize(
    ("shipping", "ca_key", "words"),
    [
        (ShippingConfig(directory="/x", command=("ssh",)), "apart", "not both"),
        (ShippingConfig(directory="x"), "apart", "absolute"),
        (ShippingConfig(directory="/x"), "clear", "backup.ca_key"),
        (ShippingConfig(directory="/x", every=0.001), "apart", "at least 50ms"),  # type: ignore[arg-type]
    ],
)
def test_a_shipping_that_cannot_work_is_refused(
    shipping: ShippingConfig, ca_key: str, words: str
) -> None:
    config = MasterConfig(shipping=shipping, backup=BackupConfig(ca_key=ca_key))
    with pytest.raises(ConfigError, match=words):
        _checked(config)
