"""The loop's state of forecasts: first forecasts against real starts, and the twin's health."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.control.forecast.accuracy import Starts
from dlq_master.control.forecast.helper_health import HelperHealth
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.store.batch import Loaded


@dataclass(slots=True)
class ForecastState:
    """`accuracy` is stored, `twin_health` is not."""

    accuracy: Starts = field(default_factory=Starts)
    twin_health: HelperHealth = field(default_factory=lambda: HelperHealth("twin"))

    def restore(self, loaded: Loaded, cluster: Cluster) -> None:
        """Take over what is stored."""
        self.accuracy = Starts(loaded.foreseen, cluster.jobs)
