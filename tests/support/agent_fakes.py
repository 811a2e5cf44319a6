"""What an agent's core is given on a bench: errands, a contact and a journal in memory."""

from collections.abc import Iterable, Sequence

from dlq_nodeagent.model.errands import LookOrder, Move, PrepareOrder, ReadOrder
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Launch, OpenExec, OpenLog, OpenSamples
from dlq_nodeagent.model.port import Handle
from dlq_nodeagent.state.journal import NodeRecord, RankRecord


class FakeErrands:
    """Keeps every order for the test or simulation that answers it."""

    def __init__(self) -> None:
        self.prepares: list[PrepareOrder] = []
        self.looks: list[LookOrder] = []
        self.moves: list[Move] = []
        self.gpu_looks: list[int] = []
        self.logs: list[tuple[OpenLog, Handle | None, str]] = []
        self.samples: list[OpenSamples] = []
        self.inside: list[tuple[OpenExec, Handle | None]] = []
        self.tidied: list[RankKey] = []
        self.abandoned: list[RankKey] = []
        self.reads: list[ReadOrder] = []
        self.dropped: list[RankKey] = []
        self.traffic_looks: list[tuple[RankKey, float]] = []
        self.kept_profiles: frozenset[RankKey] | None = None

    def prepare(self, order: PrepareOrder) -> None:
        self.prepares.append(order)

    def abandon(self, key: RankKey) -> None:
        self.abandoned.append(key)

    def look(self, order: LookOrder) -> None:
        self.looks.append(order)

    def move(self, order: Move) -> None:
        self.moves.append(order)

    def look_at_gpus(self, number: int) -> None:
        self.gpu_looks.append(number)

    def send_log(self, order: OpenLog, handle: Handle | None, never_ran: str) -> None:
        self.logs.append((order, handle, never_ran))

    def send_samples(self, order: OpenSamples) -> None:
        self.samples.append(order)

    def run_inside(self, order: OpenExec, handle: Handle | None) -> None:
        self.inside.append((order, handle))

    def tidy(self, key: RankKey) -> None:
        self.tidied.append(key)

    def look_at_traffic(self, launch: Launch, since_s: float) -> None:
        self.traffic_looks.append((launch.key, since_s))

    def read_profile(self, order: ReadOrder) -> None:
        self.reads.append(order)

    def drop_profile(self, key: RankKey) -> None:
        self.dropped.append(key)

    def drop_profiles_but(self, keys: Iterable[RankKey]) -> None:
        self.kept_profiles = frozenset(keys)

    def take_prepares(self) -> Sequence[RankKey]:
        """The keys to prepare, once."""
        keys = [order.launch.key for order in self.prepares]
        self.prepares.clear()
        return keys

    def take_looks(self) -> Sequence[LookOrder]:
        """The looks asked for, once."""
        orders = list(self.looks)
        self.looks.clear()
        return orders


class FakeContact:
    """A contact in memory; for tests and deterministic runs."""

    def __init__(self) -> None:
        self._last_s: float | None = None

    def boottime_s(self) -> float | None:
        return self._last_s

    def renew(self, boottime_s: float) -> None:
        self._last_s = boottime_s if self._last_s is None else max(self._last_s, boottime_s)


class MemoryJournal:
    """A journal in memory; survives a simulated crash because the test keeps the object.

    Knob: `fails` makes every save raise, as a full disk does. `waits`: how often it synced.
    """

    def __init__(self) -> None:
        self._node = NodeRecord()
        self._ranks: dict[RankKey, RankRecord] = {}
        self.fails = False
        self.waits = 0

    def load(self) -> tuple[NodeRecord, tuple[RankRecord, ...]]:
        return self._node, tuple(
            self._ranks[key] for key in sorted(self._ranks, key=RankKey.numbers)
        )

    def save_node(self, record: NodeRecord) -> None:
        self._refuse_if_told()
        self._node = record

    def save_rank(self, record: RankRecord) -> None:
        self._refuse_if_told()
        self._ranks[record.launch.key] = record

    def sync(self) -> None:
        self.waits += 1
        self._refuse_if_told()

    def drop_rank(self, key: RankKey) -> None:
        self._ranks.pop(key, None)

    def _refuse_if_told(self) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
