"""Asks providers what the loop wants of them, in threads, and tells it what they answered.

At most `MOST_AT_ONCE` calls of all pools together; each is audited as a call of the master itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread

from dlq_common.daemon.logs import get_logger
from dlq_master.control.pool_config import EXEC, SLURM, STATIC, PoolConfig
from dlq_master.control.stimuli import Stimulus
from dlq_master.control.stimuli.machines import Act, ProviderTold, Verb
from dlq_master.providers.port import MachineWish, Provider, ProviderFailed

MOST_AT_ONCE = 8
_log = get_logger("master.pools")
Audited = Callable[[str, str, str], object]  # verb, machine, what came of it


class ProviderDesk:
    """The loop's `Desk`."""

    def __init__(
        self,
        pools: tuple[PoolConfig, ...],
        tell: Callable[[Stimulus], None],
        *,
        join_address: str,
        token_of: Callable[[str, str], str],
        audited: Audited = lambda _verb, _machine, _outcome: None,
        providers: Mapping[str, Provider] | None = None,
    ) -> None:
        """`token_of`: the text of a join token from its id and secret."""
        self._pools = {pool.name: pool for pool in pools}
        self._providers = providers or {pool.name: _provider_of(pool) for pool in pools}
        self._tell = tell
        self._join_address = join_address
        self._token_of = token_of
        self._audited = audited
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, act: Act) -> None:
        """See `Desk`."""
        task = asyncio.get_running_loop().create_task(self._ask(act), name=f"pool-{act.verb.value}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Do not wait: the next master asks the open questions again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, act: Act) -> None:
        async with self._room:
            told = await self._beside(act)
        outcome = told.fault or told.instance_id or ("gone" if told.gone else "OK")
        if act.verb is not Verb.LIST:
            self._audited(f"provider {act.verb.value}", act.request_id, outcome)
        _log.info(
            "provider_asked",
            verb=act.verb.value,
            pool=act.pool,
            machine=act.request_id,
            outcome=outcome,
        )
        self._tell(told)

    def _beside(self, act: Act) -> asyncio.Future[ProviderTold]:
        """The answer, from a thread for which nobody waits when the master ends. The leash kills a
        running program once the master is gone (`leash`). An executor would first wait for its time
        limit.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[ProviderTold] = loop.create_future()

        def deliver(answer: ProviderTold) -> None:
            if not told.done():
                told.set_result(answer)

        def work() -> None:
            answer = self.answer(act)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(deliver, answer)

        Thread(target=work, name=f"pool-{act.verb.value}", daemon=True).start()
        return told

    def answer(self, act: Act) -> ProviderTold:
        """Ask, and wait for the answer; failures are reported too."""
        try:
            provider = self._providers[act.pool]
            match act.verb:
                case Verb.START:
                    return ProviderTold(act=act, instance_id=provider.start(self._wish(act)))
                case Verb.STOP:
                    return ProviderTold(
                        act=act, gone=provider.stop(act.request_id, act.instance_id)
                    )
                case Verb.LIST:
                    return ProviderTold(act=act, listed=provider.list())
        except ProviderFailed as error:
            return ProviderTold(act=act, fault=str(error))
        except Exception as error:  # noqa: BLE001 - a bug of a provider: the machine must not be forgotten for it
            _log.exception("provider_failed", verb=act.verb.value, pool=act.pool)
            return ProviderTold(act=act, fault=f"{type(error).__name__}: {error}")

    def _wish(self, act: Act) -> MachineWish:
        pool = self._pools[act.pool]
        return MachineWish(
            request_id=act.request_id,
            pool=act.pool,
            node_id=act.node_id,
            gpu_type=pool.gpu_type,
            gpu_count=pool.gpus,
            join_address=self._join_address,
            token=self._token_of(act.request_id, act.secret),
        )


def _provider_of(pool: PoolConfig) -> Provider:
    """A master begins with the modules of its own providers; most masters have none."""
    match pool.provider:
        case word if word == STATIC:
            from dlq_master.providers.static import StaticProvider

            return StaticProvider()
        case word if word == EXEC:
            from dlq_master.providers.exec import ExecProvider

            return ExecProvider(pool)
        case word if word == SLURM:
            from dlq_master.providers.slurm import SlurmProvider

            return SlurmProvider(pool)
    raise KeyError(pool.provider)
