"""The constants of our methods: their values, and the jobs that each was chosen and is judged on.

Values come from the code. A constant that was set by reason, or taken from a paper, was chosen on
no jobs; its ground says so. `chosen_on` tells a case which jobs its methods have seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from dlq_master.policy.registry.presets import PRESETS

_PRESET = "preset "
POLICY = "dlq_master.policy"


class Constant(NamedTuple):
    """`where`: `preset NAME`, of which the name is a default setting, or the module that has it.
    Sets are words of `job_sets.SETS`.
    """

    name: str
    where: str
    methods: tuple[str, ...]
    ground: str
    fitted_on: tuple[str, ...] = ()
    judged_on: tuple[str, ...] = ()


_DLQ, _PROMISING, _RENTS = ("dlq",), ("dlq", "chronus"), ("gpuaas-marginal",)
_OF_DLQ = f"{_PRESET}dlq"
_ON_MATRIX = {"fitted_on": ("matrix",), "judged_on": ("matrix",)}
_ON_DRAWN = {"fitted_on": ("chronus-drawn",), "judged_on": ("chronus-drawn", "chronus-released")}
_ORDERS = {
    "fitted_on": ("arrivals-9001", "arrivals-7402"),
    "judged_on": ("arrivals-7401", "arrivals-7402"),
}
_ERRORS = {"fitted_on": ("kept-fitted",), "judged_on": ("kept-check",)}
_NODES = {
    "fitted_on": ("gpuaas-files", "gpuaas-others", "gpuaas-8101"),
    "judged_on": ("gpuaas-8101", "gpuaas-9101"),
}
_RULE = "a rule, without a number"
_LOOKED = "arrivals-7402 had been looked at before the last choice"
_SEEN = "gpuaas-8101 had been seen before the last choice"
CONSTANTS = (
    Constant("guarantee", _OF_DLQ, _PROMISING, "measured alone on seed 7501", **_ON_DRAWN),
    Constant("be_floor", _OF_DLQ, _PROMISING, "measured alone on seed 7501", **_ON_DRAWN),
    Constant("SHARE", f"{POLICY}.promise.solver.price", _PROMISING, "comes with `guarantee`; "
             "its value is not recorded"),
    Constant("CUSHION", f"{POLICY}.promise.slots.late", _DLQ, "one slot, by reason"),
    Constant("slots", _OF_DLQ, _DLQ, _RULE, **_ON_MATRIX),
    Constant("select", _OF_DLQ, _DLQ, "a rule; one slot to spare was compared with 0, 3 and 6",
             ("chances-fitted",), ("audited", "matrix")),
    Constant("CHANCE_TERMS", f"{POLICY}.promise.capacity.rules", _DLQ, "compared with 1 and 4",
             ("chances-fitted",), ("audited",)),
    Constant("MOST", f"{POLICY}.size.headroom", _DLQ, "by reason"),
    Constant("spot", _OF_DLQ, _DLQ, "compared with `srtf` and `srsf`", **_ON_MATRIX),
    Constant("FIRST_GPU_S", f"{POLICY}.order.expected_left", _DLQ, "Tiresias' first threshold"),
    Constant("FACTOR", f"{POLICY}.order.expected_left", _DLQ, "not recorded"),
    Constant("trials", _OF_DLQ, _DLQ, _RULE, **_ON_MATRIX),
    Constant("share", _OF_DLQ, _DLQ, _RULE),
    Constant("pack", _OF_DLQ, _DLQ, _RULE),
    Constant("min_run", _OF_DLQ, _DLQ, "by reason, then compared with `off`", **_ON_MATRIX),
    Constant("hysteresis", _OF_DLQ, _DLQ, "by reason, then compared with `off`", **_ON_MATRIX),
    Constant("max_preemptions", _OF_DLQ, _DLQ, "by reason, then compared with `off`", **_ON_MATRIX),
    Constant("aging", _OF_DLQ, _DLQ, "compared with 0.1 and 0.3", **_ON_MATRIX),
    Constant("cooldown_s", _OF_DLQ, _DLQ, "by reason"),
    Constant("keep_gpus_s", _OF_DLQ, _DLQ, "by reason: one term"),
    Constant("foresight", _OF_DLQ, _DLQ, _RULE, ("small-fitted",), ("small-held-out",)),
    Constant("MOST_JOBS", f"{POLICY}.order.foresight", _DLQ, "CPU time of a decision"),
    Constant("MOST_NODES", f"{POLICY}.order.foresight", _DLQ, "CPU time of a decision"),
    Constant("FIRM", f"{POLICY}.promise.slots.realise", _PROMISING, _LOOKED, **_ORDERS),
    Constant("MORE", f"{POLICY}.promise.slots.realise", _PROMISING, _LOOKED, **_ORDERS),
    Constant("KEEP", f"{POLICY}.promise.capacity.margins", _PROMISING, "the operator's target"),
    Constant("DECLARED", f"{POLICY}.promise.capacity.margins", _PROMISING, "before any job ended",
             **_ERRORS),
    Constant("MEASURED", f"{POLICY}.promise.capacity.margins", _PROMISING, "half of the broken "
             "promises of replays were among the first; of which replays is not recorded"),
    Constant("STEP", f"{POLICY}.promise.capacity.margins", _PROMISING, "how fast coverage follows",
             **_ERRORS),
    Constant("LOOSEST", f"{POLICY}.promise.capacity.margins", _PROMISING, "the least coverage",
             **_ERRORS),
    Constant("LOOKAHEAD", f"{POLICY}.priced.marginal", _RENTS, _SEEN, **_NODES),
    Constant("HOLD", f"{POLICY}.priced.marginal", _RENTS, _SEEN, **_NODES),
    Constant("_COMMON", "dlq_simulator.twin.forecast", ("forecasts",), "four starts of five are to "
             "come in their range", ("philly",), ("philly",)),
    Constant("PACKLIMIT", "dlq_common.slowdown", ("placement",), "the two clusters of models in "
             "Tiresias' Table 6"),
    Constant("OVERLAP", "dlq_common.slowdown", ("placement",), "eleven measured jobs, which are no "
             "replay"),
)  # fmt: skip


def chosen_on(method: str) -> tuple[str, ...]:
    """The sets that some constant of a method was chosen on."""
    own = [one.fitted_on for one in CONSTANTS if method in one.methods]
    return tuple(dict.fromkeys(name for names in own for name in names))


def value_of(constant: Constant) -> str:
    """As the code has it; KeyError or AttributeError where it has none of that name."""
    if constant.where.startswith(_PRESET):
        return PRESETS[constant.where.removeprefix(_PRESET)].defaults[constant.name]
    return str(getattr(import_module(constant.where), constant.name))


def values() -> Mapping[str, str]:
    """All of them, by their names and places."""
    return {key_of(one): value_of(one) for one in CONSTANTS}


def key_of(constant: Constant) -> str:
    """`min_run` of a preset, or `marginal.HOLD`."""
    if constant.where.startswith(_PRESET):
        return constant.name
    return f"{constant.where.rpartition('.')[2]}.{constant.name.lstrip('_')}"
