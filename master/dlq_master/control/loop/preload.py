"""Every module that a turn can need is imported before the first one.

Some modules are imported inside functions, so that commands start quickly. In a master that serves,
such an import would read whatever version of the package is installed by then.
"""

import importlib
import pkgutil
from types import ModuleType

from dlq_master import control, model, policy

LIBRARIES = ("numpy", "scipy.optimize", "scipy.sparse")


def preload() -> None:
    """Import all of the core, and what it imports late of libraries."""
    for package in (model, policy, control):
        _all_of(package)
    for name in LIBRARIES:
        importlib.import_module(name)


def _all_of(package: ModuleType) -> None:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)
