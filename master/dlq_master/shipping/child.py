"""The master's side of the shipping: a process that is kept alive, and copies of logs for it.

SQLite writes a log anew when all of it is in the database. The writer therefore decides when that
may be, and copies the log first: no commit can pass the process unseen. A copy that finds no room
is left out. The process notices it, and ships the whole database.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dlq_common.daemon.config import dump_config
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_common.identity.files import SEEDS_FILE
from dlq_common.identity.pki import Authority, fingerprint
from dlq_common.identity.private_files import read_private
from dlq_master.control.config import MasterConfig
from dlq_master.shipping.log import FRAME_HEADER_BYTES, LOG_HEADER_BYTES
from dlq_master.shipping.program import REPLACED_CODE, STOP, ShippingOrder
from dlq_master.shipping.shipper import SEALED, Assignment
from dlq_master.shipping.status import SUPERSEDED
from dlq_master.store.sqlite.backup import SEALED_KEY
from dlq_master.store.sqlite.halves import Writer

COMMAND: Final = (sys.executable, "-P", "-m", "dlq_master.shipping.program")
MOST_SEALED: Final = 64  # copies of a log; beyond them a snapshot costs less
LOOK_S: Final = 1.0
LONGEST_REST_S: Final = 60.0
STOP_S: Final = 5.0


class MasterSuperseded(DlqError):
    """Another master has been recovered in this one's place: this one may not serve."""

    reason = "MASTER_SUPERSEDED"


class ShippingChild:
    """One shipping process at a time, for one life of the master."""

    def __init__(
        self,
        config: MasterConfig,
        epoch: int,
        authority: Callable[[], Authority],
        system: str = "",
    ) -> None:
        """`authority`: the present one, which may change while the master runs."""
        self._state_dir = config.cluster.state_dir
        self._folder = self._state_dir / SEALED
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        self._config, self._authority, self._sealed = config, authority, authority()
        self._order = _order(config, epoch, self._sealed, self._folder, system)
        self._process: subprocess.Popen[bytes] | None = None
        self._logs = SealedLogs(self._folder)
        self._log = get_logger("master.shipping")

    async def follow(self, writer: Writer) -> None:
        """Begin: from now on no log is written anew before it was copied."""
        await writer.copy_logs_by(self._logs.copy)
        self._start()

    async def run(self, stop_master: Callable[[], object]) -> None:
        """Keep the process alive; ends when another master has taken this one's place, with the
        master.
        """
        rest_s = LOOK_S
        while True:
            await asyncio.sleep(LOOK_S)
            self._seal_anew()
            code = None if self._process is None else self._process.poll()
            if code is None:
                rest_s = LOOK_S if self._process is not None else rest_s
                continue
            if code == REPLACED_CODE:
                stop_master()
                return
            self._log.error("shipping_ended", code=code, rest_s=rest_s)
            await asyncio.sleep(rest_s)
            rest_s = min(2.0 * rest_s, LONGEST_REST_S)
            self._start()

    def _seal_anew(self) -> None:
        """Another authority is the present one by now: its key goes along, and its certificate."""
        present = self._authority()
        if present is self._sealed:
            return
        try:
            _seal(self._config, present, self._folder)
        except (OSError, DlqError) as error:
            self._log.error("ca_not_shipped", cause=str(error))
            return  # and again at the next look
        self._sealed = present

    def refuse_superseded(self) -> None:
        """Raises MasterSuperseded when that was why the master stopped."""
        refuse_superseded(self._state_dir)

    async def stop(self) -> None:
        """Let it ship what is left, for a moment."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with suppress(OSError):
            process.stdin.write(STOP)
        process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def _start(self) -> None:
        former = self._process
        if former is not None and former.stdin is not None:
            former.stdin.close()
        process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, bufsize=0)
        assert process.stdin is not None
        with suppress(OSError):  # it has died already, which `run` finds out
            process.stdin.write(self._order.text())
        self._process = process


class SealedLogs:
    """Copies of logs that are about to begin anew, in a folder: the process ships and removes them.

    The writer's thread makes them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def copy(self, database: Path, frames: int) -> None:
        """Copy the log, which holds so many frames and is in the database. The writer waits
        for it, so that no commit comes meanwhile.
        """
        self._number += 1
        if sum(1 for _ in self._folder.glob("*.wal")) >= MOST_SEALED:
            return
        target = self._folder / f"{self._number:012d}.wal"
        unfinished = target.with_suffix(".part")
        try:
            with open(f"{database}-wal", "rb") as log, unfinished.open("wb") as copy:
                page_bytes = int.from_bytes(log.read(LOG_HEADER_BYTES)[8:12])
                left = LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes)
                at = 0
                while left and (sent := os.sendfile(copy.fileno(), log.fileno(), at, left)):
                    at, left = at + sent, left - sent
            if not left:
                unfinished.rename(target)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()


def refuse_superseded(state_dir: Path) -> None:
    """Raises MasterSuperseded when this master has been replaced."""
    try:
        by = (state_dir / SUPERSEDED).read_text().strip()
    except FileNotFoundError:
        return
    raise MasterSuperseded(
        f"another master has taken this one's place: {by}",
        hint=f"retire this host; if that master never served, remove {state_dir / SUPERSEDED}",
    )


def _order(
    config: MasterConfig, epoch: int, authority: Authority, folder: Path, system: str
) -> ShippingOrder:
    shipping, state_dir = config.shipping, config.cluster.state_dir
    files = {name: state_dir / name for name in ("ca.crt", SEEDS_FILE)}
    files |= {name: folder / name for name in ("master.toml", SEALED_KEY)}
    files["master.toml"].write_text(dump_config(config))
    _seal(config, authority, folder)
    return ShippingOrder(
        assignment=Assignment(
            state_dir=str(state_dir),
            system=system or fingerprint(authority.certificate_pem()),
            epoch=epoch,
            token=secrets.token_hex(16),
            host=os.uname().nodename,
            every_s=float(shipping.every),
            snapshot_every_s=float(shipping.snapshot_every),
            files={name: str(path) for name, path in files.items()},
        ),
        directory=shipping.directory,
        command=shipping.command,
        same_disk=shipping.same_disk,
        log_level=config.log.level,
    )


def _seal(config: MasterConfig, authority: Authority, folder: Path) -> None:
    """The key of the authority by the passphrase, if it goes along; whole at each moment."""
    if config.backup.ca_key != "encrypted":
        return
    passphrase = read_private(Path(config.backup.passphrase_file)).strip()
    unfinished = folder / f"{SEALED_KEY}.part"
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(authority.sealed_key_pem(passphrase))
    unfinished.replace(folder / SEALED_KEY)
