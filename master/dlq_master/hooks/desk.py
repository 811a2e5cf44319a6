"""The calls of hooks: how many wait, whose is next, and what has come of them.

Nothing of the loop waits here. A submission waits for its own call, in the task of its own request.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_master.control.config import HooksConfig, MasterConfig
from dlq_master.hooks.account import read_file, starter
from dlq_master.hooks.process import (
    HookBusy,
    HookFailed,
    HookFile,
    HookLimits,
    HookProcess,
    HookStarter,
)
from dlq_master.hooks.turns import FairTurns

_log = get_logger("master.hooks")
ON_SUBMIT: Final = "on_submit"
HOOKS: Final = (ON_SUBMIT, "on_start", "on_end")
OK, REFUSED, FAILED = "ok", "refused", "failed"
MOST_KNOWN: Final = 256  # answers of late
BUSY_S: Final = 1.0  # then there may be room again
TRIAL_REST_S: Final = 1.0  # a trial waits so long for another process, so that each call is made
Knows = Callable[[str, str], bool]
Key = tuple[str, ...]


def desk_of(config: MasterConfig, clock: Clock, knows: Knows) -> HookDesk:
    """The desk of a master. A file that cannot be read is told; the hooks fail until a reload.
    ConfigError: there is no account for them.
    """
    start = starter(config.hooks)
    try:
        file = read_file(config.hooks.file)
    except ConfigError as error:
        _log.error("hooks_unreadable", error=error.what)
        file = HookFile(config.hooks.file, f"raise RuntimeError({error.what!r})")
    queues = tuple(queue.name for queue in config.queues)
    return HookDesk(
        config.hooks, file, start, clock, cluster=config.cluster.name, queues=queues, knows=knows
    )


class HookDesk:
    """All that the master has to do with hooks."""

    def __init__(
        self,
        config: HooksConfig,
        file: HookFile,
        start: HookStarter,
        clock: Clock,
        *,
        cluster: str,
        queues: tuple[str, ...],
        knows: Knows,
    ) -> None:
        """`knows`: whether a caller's request id has been answered before."""
        self._start, self._config, self.clock = start, config, clock
        self.process = self._process_of(file)
        self.cluster, self.queues, self.knows = cluster, queues, knows
        self.calls: Counter[tuple[str, str]] = Counter()  # by hook and outcome
        self.seconds: Counter[str] = Counter()  # of the calls of a hook, without their waiting
        self.waiting = 0
        self._of_user: Counter[str] = Counter()  # calls that wait or run, of submissions
        self._turns, self._trials = FairTurns(), asyncio.Lock()
        self._known: OrderedDict[Key, asyncio.Task[Mapping[str, Any]]] = OrderedDict()
        self._open: set[asyncio.Task[Mapping[str, Any]]] = set()

    def policy(self, hook: str) -> str:
        """The fate of a request when this hook fails: "closed" or "open"; "": it is not called."""
        return str(getattr(self._config, hook))

    async def call(self, hook: str, told: Mapping[str, Any], key: Key = ()) -> Mapping[str, Any]:
        """The answer of a hook. Raises HookFailed. The same `key` has the same answer for a while,
        and the hook runs once. A caller that leaves does not end the call: others need the process.
        """
        known = self._known.get(key) if key else None
        if known is not None and not (known.done() and (known.cancelled() or known.exception())):
            return await asyncio.shield(known)
        # Submissions alone are bounded. Of starts and ends one is told at a time, and a failure
        # there may hold the job of a user who has sent nothing.
        user = str(told["user"]["name"]) if hook == ON_SUBMIT else ""
        if user:
            self._check_room(user)
        self.waiting += 1
        self._of_user[user] += 1
        task = asyncio.create_task(self._call(hook, told, user))
        self._open.add(task)
        task.add_done_callback(partial(self._over, user))
        if key:
            self._known[key] = task
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return await asyncio.shield(task)

    async def reload(self) -> None:
        """Take the file as it is now. ConfigError: it is no good, and the former one goes on."""
        new = await self._loaded(read_file(self._config.file))
        missing = [hook for hook in HOOKS if self.policy(hook) and hook not in new.facts["hooks"]]
        if missing:
            await new.stop()
            raise ConfigError(f"{new.file.name} has no function {missing[0]}", key="hooks.file")
        async with self._turns.turn(""):
            former, self.process = self.process, new
        self._known.clear()
        await former.stop()
        _log.info("hooks_reloaded", file=new.file.name)

    async def trial(
        self, file: HookFile, hook: str, tolds: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any] | HookFailed]:
        """The answers of another file, in its own process. ConfigError: it cannot be loaded."""
        async with self._trials:
            process = await self._loaded(file)
            try:
                return [await _tried(process, hook, told) for told in tolds]
            finally:
                await process.stop()

    async def close(self) -> None:
        """End the process; calls that wait have no answer."""
        for task in self._open:
            task.cancel()
        await self.process.stop()

    def _process_of(self, file: HookFile) -> HookProcess:
        limits = HookLimits(self._config.time_limit, self._config.memory)
        return HookProcess(file, limits, self._start, self.clock)

    async def _loaded(self, file: HookFile) -> HookProcess:
        process = self._process_of(file)
        try:
            await process.load()
        except HookFailed as failed:
            raise ConfigError(failed.words, key="hooks.file") from None
        return process

    def _check_room(self, user: str) -> None:
        """HookBusy: this user has enough calls that wait. Everybody has room for one, always."""
        own, most = self._of_user[user], self._config.waiting_per_user
        if own >= most:
            what = f"{own} submissions of {user} wait for it already, {most} at most"
        elif own and self.waiting >= self._config.waiting:
            what = f"{self.waiting} submissions wait for it already, {own} of them of {user}"
        else:
            return
        self.calls[ON_SUBMIT, FAILED] += 1
        raise HookBusy(what, BUSY_S)

    async def _call(self, hook: str, told: Mapping[str, Any], user: str) -> Mapping[str, Any]:
        outcome = FAILED
        try:
            async with self._turns.turn(user):
                since_s = self.clock.boottime_s()
                try:
                    answer = await self.process.call(hook, told)
                finally:
                    self.seconds[hook] += self.clock.boottime_s() - since_s  # type: ignore[assignment]
            outcome = REFUSED if answer.get("refused") else OK
            return answer
        finally:
            self.calls[hook, outcome] += 1

    def _over(self, user: str, task: asyncio.Task[Mapping[str, Any]]) -> None:
        self._open.discard(task)
        self.waiting -= 1
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]
        if not task.cancelled():
            task.exception()  # its caller may have left, and nobody else asks


async def _tried(
    process: HookProcess, hook: str, told: Mapping[str, Any]
) -> Mapping[str, Any] | HookFailed:
    if 0.0 < process.rest_s <= TRIAL_REST_S:
        await asyncio.sleep(process.rest_s)
    try:
        return await process.call(hook, told)
    except HookFailed as failed:
        return failed
