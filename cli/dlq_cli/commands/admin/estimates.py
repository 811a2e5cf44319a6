"""`dlq admin estimates`: the errors of start ranges, and the last run of the twin."""

from __future__ import annotations

import click

from dlq.v1 import forecast_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import quality_facts
from dlq_cli.facts.common import tell
from dlq_cli.output.render import OutputLook, age, facts, when
from dlq_client.forecasts import Forecasts
from dlq_common.text.wire import from_duration, from_timestamp


@click.command(epilog=examples("dlq admin estimates", "dlq admin estimates --json"))
@json_option
@pass_app
def estimates(app: App, as_json: bool) -> None:
    """Forecasts of starts since the master started: the first forecast of each job against its real
    start.
    """
    quality = Forecasts(app.connection()).quality()
    tell(
        quality_facts(quality),
        lambda: facts(quality_pairs(quality, app.look())),
        as_json=as_json,
    )


def quality_pairs(
    quality: wire.GetForecastQualityResponse, look: OutputLook
) -> tuple[tuple[str, str], ...]:
    """How good start ranges have been, and the last look of the twin."""
    looked = quality.HasField("look_time")
    cpu_s = from_duration(quality.cpu_duration)
    return (
        ("jobs compared", str(quality.job_count)),
        *(_errors(quality) if quality.job_count else ()),
        ("last look", when(from_timestamp(quality.look_time), look) if looked else "never"),
        ("it took", f"{cpu_s:.2f} s of CPU time, {quality.world_count} worlds" if looked else ""),
        ("start ranges", str(quality.estimate_count) if looked else ""),
    )


def _errors(quality: wire.GetForecastQualityResponse) -> tuple[tuple[str, str], ...]:
    late_s = from_duration(quality.late_median_duration)
    side = "later" if late_s >= 0 else "earlier"
    return (
        ("error, median", age(from_duration(quality.error_median_duration))),
        ("error, 90 %", age(from_duration(quality.error_p90_duration))),
        ("starts come", f"{age(abs(late_s))} {side} than forecast, median"),
        ("in their range", f"{quality.within_ratio:.0%}"),
        ("foreseen", f"{age(from_duration(quality.wait_median_duration))} before, median"),
    )
