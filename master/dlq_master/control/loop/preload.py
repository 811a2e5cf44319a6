"""Every module of ours that a turn can need is imported before the first one.

Some modules are imported inside functions, so that commands start quickly. In a master that serves,
such an import would read whatever version of the package is installed by then. Only libraries for
numbers come later (`model/late.py`). So do the modules of grants, which few clusters have:
`serving.py` loads them where there is a grant.
"""

import importlib
import pkgutil
from types import ModuleType

from dlq_master import control, model, policy

SELDOM = frozenset({"dlq_master.control.people.grants"})


def preload() -> None:
    """Import all of the core."""
    for package in (model, policy, control):
        _all_of(package)


def _all_of(package: ModuleType) -> None:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name not in SELDOM:
            importlib.import_module(found.name)
