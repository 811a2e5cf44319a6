"""One look at an NVIDIA GPU through NVML: its symptoms, its temperature and its load.

Values that a driver or a model does not support are left out; a silent device raises. Any other
answer to one of these questions is shown (`odd_answer`), and takes no GPU from work.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from dlq_nodeagent.devices.port import DeviceSample, DeviceUsage, DeviceVitals

ODD_ANSWER = "odd_answer"
# NVML_GPU_RECOVERY_ACTION_*: the recovery that the driver itself asks for.
_RECOVERY = {
    1: "recovery_reset",
    2: "recovery_reboot",
    4: "recovery_reset",
    6: "recovery_reset",
    7: "recovery_reboot",
}


@dataclass(slots=True)
class _Questions:
    """The questions of one look, and the odd answers to them."""

    nvml: Any
    odd: dict[str, int] = field(default_factory=dict)
    """NVML's error by the question."""

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer; None where there is none. Raises NVMLError for a device that is silent."""
        nvml = self.nvml
        try:
            return getattr(nvml, name)(*arguments)
        except (
            nvml.NVMLError_GpuIsLost,
            nvml.NVMLError_ResetRequired,
            nvml.NVMLError_Timeout,
        ):
            raise
        except (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_InvalidArgument,
            nvml.NVMLError_NoPermission,
        ):
            return None
        except nvml.NVMLError as error:
            self.odd[name] = int(error.value)
            return None

    def symptoms(self) -> Iterator[tuple[str, str]]:
        """One for all odd answers, if there are any."""
        if self.odd:
            each = [f"{name} answers with error {code}" for name, code in self.odd.items()]
            yield ODD_ANSWER, "; ".join(each)


class Examiner:
    """Remembers link errors from look to look: the counters only ever rise."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml: Any = nvml
        self._link_errors: dict[str, int] = {}

    def examine(self, uuid: str, handle: Any, usage: DeviceUsage) -> DeviceVitals:
        """All of it. Raises NVMLError for a device that does not answer."""
        asked = _Questions(self._nvml)
        rates = asked.ask("nvmlDeviceGetUtilizationRates", handle)
        celsius = asked.ask("nvmlDeviceGetTemperature", handle, self._nvml.NVML_TEMPERATURE_GPU)
        symptoms = tuple(self._symptoms(asked, uuid, handle))
        return DeviceVitals(
            uuid=uuid,
            symptoms=(*symptoms, *asked.symptoms()),
            usage=usage,
            temperature_celsius=None if celsius is None else int(celsius),
            utilization_percent=None if rates is None else int(rates.gpu),
        )

    def sample(self, uuid: str, handle: Any) -> DeviceSample:
        """Three short questions. Raises NVMLError for a device that does not answer."""
        asked = _Questions(self._nvml)
        rates = asked.ask("nvmlDeviceGetUtilizationRates", handle)
        power = asked.ask("nvmlDeviceGetPowerUsage", handle)
        clock = asked.ask("nvmlDeviceGetClockInfo", handle, self._nvml.NVML_CLOCK_SM)
        return DeviceSample(
            uuid,
            None if rates is None else int(rates.gpu),
            None if power is None else power / 1000.0,
            None if clock is None else int(clock),
        )

    def _symptoms(self, asked: _Questions, uuid: str, handle: Any) -> Iterator[tuple[str, str]]:
        yield from self._memory(asked, handle)
        yield from self._clocks(asked, handle)
        yield from self._links(asked, uuid, handle)
        yield from self._recovery(asked, handle)
        yield from self._parts(asked, handle)

    def _memory(self, asked: _Questions, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        count = asked.ask("nvmlDeviceGetTotalEccErrors", handle, kind, since)
        if count:
            yield "ecc_uncorrected", f"{count} since the driver was loaded"
        rows = asked.ask("nvmlDeviceGetRemappedRows", handle)
        if rows is not None:
            _, uncorrected, pending, failed = rows
            if pending:
                yield "row_remap_pending", f"{uncorrected} rows replaced for uncorrected errors"
            if failed:
                yield "row_remap_failed", "no spare row is left for a bad one"
        elif asked.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle):
            yield "page_retirement_pending", "pages wait for the next reset"

    def _clocks(self, asked: _Questions, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        why = asked.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if why is None:
            return
        if why & nvml.nvmlClocksThrottleReasonHwThermalSlowdown:
            yield "thermal_slowdown", "the hardware slows it down"
        elif why & nvml.nvmlClocksThrottleReasonSwThermalSlowdown:
            yield "thermal_slowdown", "the driver slows it down"
        if why & nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown:
            yield "power_brake", "the power supply slows it down"

    def _links(self, asked: _Questions, uuid: str, handle: Any) -> Iterator[tuple[str, str]]:
        states = self._link_states(asked, handle)
        up = [link for link, active in states.items() if active]
        down = [str(link) for link, active in states.items() if not active]
        if up and down:  # a card without partners has none that is up
            yield "nvlink_down", f"links {', '.join(down)}"
        errors = sum(self._errors(asked, handle, link) for link in up)
        before = self._link_errors.get(uuid, errors)
        self._link_errors[uuid] = errors
        if errors > before:
            yield "nvlink_errors", f"{errors - before} more since the last look"

    def _link_states(self, asked: _Questions, handle: Any) -> dict[int, bool]:
        states: dict[int, bool] = {}
        for link in range(self._nvml.NVML_NVLINK_MAX_LINKS):
            active = asked.ask("nvmlDeviceGetNvLinkState", handle, link)
            if active is None:
                break  # the model has no more
            states[link] = bool(active)
        return states

    def _errors(self, asked: _Questions, handle: Any, link: int) -> int:
        nvml = self._nvml
        counters = (
            nvml.NVML_NVLINK_ERROR_DL_REPLAY,
            nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
            nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
        )
        question = "nvmlDeviceGetNvLinkErrorCounter"
        return sum(int(asked.ask(question, handle, link, counter) or 0) for counter in counters)

    def _recovery(self, asked: _Questions, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        field_id = nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        values = asked.ask("nvmlDeviceGetFieldValues", handle, [field_id])
        if values is None or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return
        code = _RECOVERY.get(int(values[0].value.uiVal))
        if code is not None:
            yield code, "the driver asks for it"

    def _parts(self, asked: _Questions, handle: Any) -> Iterator[tuple[str, str]]:
        modes = asked.ask("nvmlDeviceGetMigMode", handle)
        if modes is not None and modes[0] == self._nvml.NVML_DEVICE_MIG_ENABLE:
            yield "mig_mode", "it is cut into parts, and dlq gives out whole GPUs"
