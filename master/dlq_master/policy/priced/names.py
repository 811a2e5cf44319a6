"""The names of the priced methods and the settings of each. It imports no method, so it
is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_RULES = ("reading", "proxy", "iterations", "elite", "alpha", "beta", "swap", "rho", "mu", "moves")

DEFAULT = "dlq"  # where everything is rented; elsewhere it is a policy of the registry

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        DEFAULT: ("lookahead",),
        "gpuaas-marginal": ("lookahead",),
        "gpuaas-greedy": ("reading",),
        "gpuaas-randomized": tuple(key for key in _RULES if key not in ("elite", "moves")),
        "gpuaas-path-relinking": _RULES,
        "gpuaas-local-search": tuple(
            key for key in _RULES if key not in ("proxy", "elite", "rho", "mu")
        ),
        "gpuaas-hierarchical": ("rho", "mu", "branches", "limit_s"),
        "gpuaas-dp": ("variant", "step_s", "constant"),
        "gpuaas-fifo": (),
        "gpuaas-edf": (),
        "gpuaas-ps": (),
        "gpuaas-milp": ("rho", "mu", "limit_s"),
    }
)

# Methods that solve integer programs: they may take seconds.
PROGRAMS = ("gpuaas-milp", "gpuaas-hierarchical")

# Methods that only make sense where nodes are rented.
RENTS = frozenset(SETTINGS) - {DEFAULT}
