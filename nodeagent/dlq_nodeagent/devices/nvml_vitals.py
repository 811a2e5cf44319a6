"""One look at an NVIDIA GPU through NVML: its symptoms, its temperature and its load.

Values that a driver or a model does not support are left out; a silent device raises.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from dlq_nodeagent.devices.port import DeviceSample, DeviceUsage, DeviceVitals

# NVML_GPU_RECOVERY_ACTION_*: the recovery that the driver itself asks for.
_RECOVERY = {
    1: "recovery_reset",
    2: "recovery_reboot",
    4: "recovery_reset",
    6: "recovery_reset",
    7: "recovery_reboot",
}


class Examiner:
    """Remembers link errors from look to look: the counters only ever rise."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml: Any = nvml
        self._link_errors: dict[str, int] = {}

    def examine(self, uuid: str, handle: Any, usage: DeviceUsage) -> DeviceVitals:
        """All of it. Raises NVMLError for a device that does not answer."""
        nvml = self._nvml
        rates = self._if_supported(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        return DeviceVitals(
            uuid=uuid,
            symptoms=tuple(self._symptoms(uuid, handle)),
            usage=usage,
            temperature_celsius=self._if_supported(
                lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            utilization_percent=None if rates is None else int(rates.gpu),
        )

    def sample(self, uuid: str, handle: Any) -> DeviceSample:
        """Three short questions. Raises NVMLError for a device that does not answer."""
        nvml = self._nvml
        rates = self._if_supported(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power = self._if_supported(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        clock = self._if_supported(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        return DeviceSample(
            uuid,
            None if rates is None else int(rates.gpu),
            None if power is None else power / 1000.0,
            None if clock is None else int(clock),
        )

    def _symptoms(self, uuid: str, handle: Any) -> Iterator[tuple[str, str]]:
        yield from self._memory(handle)
        yield from self._clocks(handle)
        yield from self._links(uuid, handle)
        yield from self._recovery(handle)
        yield from self._parts(handle)

    def _memory(self, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        count = self._if_supported(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
        if count:
            yield "ecc_uncorrected", f"{count} since the driver was loaded"
        rows = self._if_supported(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        if rows is not None:
            _, uncorrected, pending, failed = rows
            if pending:
                yield "row_remap_pending", f"{uncorrected} rows replaced for uncorrected errors"
            if failed:
                yield "row_remap_failed", "no spare row is left for a bad one"
        elif self._if_supported(lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)):
            yield "page_retirement_pending", "pages wait for the next reset"

    def _clocks(self, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        why = self._if_supported(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        if why is None:
            return
        if why & nvml.nvmlClocksThrottleReasonHwThermalSlowdown:
            yield "thermal_slowdown", "the hardware slows it down"
        elif why & nvml.nvmlClocksThrottleReasonSwThermalSlowdown:
            yield "thermal_slowdown", "the driver slows it down"
        if why & nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown:
            yield "power_brake", "the power supply slows it down"

    def _links(self, uuid: str, handle: Any) -> Iterator[tuple[str, str]]:
        states = self._link_states(handle)
        up = [link for link, active in states.items() if active]
        down = [str(link) for link, active in states.items() if not active]
        if up and down:  # a card without partners has none that is up
            yield "nvlink_down", f"links {', '.join(down)}"
        errors = sum(self._errors(handle, link) for link in up)
        before = self._link_errors.get(uuid, errors)
        self._link_errors[uuid] = errors
        if errors > before:
            yield "nvlink_errors", f"{errors - before} more since the last look"

    def _link_states(self, handle: Any) -> dict[int, bool]:
        nvml = self._nvml
        states: dict[int, bool] = {}
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                states[link] = bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
            except (
                nvml.NVMLError_NotSupported,
                nvml.NVMLError_InvalidArgument,
                nvml.NVMLError_FunctionNotFound,
            ):
                break  # the model has no more
        return states

    def _errors(self, handle: Any, link: int) -> int:
        nvml = self._nvml
        total = 0
        for counter in (
            nvml.NVML_NVLINK_ERROR_DL_REPLAY,
            nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
            nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
        ):
            ask = partial(nvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, counter)
            total += int(self._if_supported(ask) or 0)
        return total

    def _recovery(self, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        field = nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        values = self._if_supported(lambda: nvml.nvmlDeviceGetFieldValues(handle, [field]))
        if values is None or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return
        code = _RECOVERY.get(int(values[0].value.uiVal))
        if code is not None:
            yield code, "the driver asks for it"

    def _parts(self, handle: Any) -> Iterator[tuple[str, str]]:
        nvml = self._nvml
        modes = self._if_supported(lambda: nvml.nvmlDeviceGetMigMode(handle))
        if modes is not None and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            yield "mig_mode", "it is cut into parts, and dlq gives out whole GPUs"

    def _if_supported(self, ask: Callable[[], Any]) -> Any:
        nvml = self._nvml
        try:
            return ask()
        except (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_InvalidArgument,
            nvml.NVMLError_NoPermission,
        ):
            return None
