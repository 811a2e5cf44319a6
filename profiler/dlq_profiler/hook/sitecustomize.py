"""Every Python of a profiled job imports this first: it sets the hook and makes way for the user's
own.

Syntax and names of old Pythons only: no Python may print anything into a job.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
try:
    if sys.version_info >= (3, 8) and os.environ.get("DLQ_PROF_DIR"):
        __import__("dlq_ddp_hook").install()
except Exception:  # noqa: BLE001  a job is worth more than its profile
    pass

# From here on as if this directory had not been there: the same path, the user's own sitecustomize.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
sys.modules.pop("sitecustomize", None)
__import__("sitecustomize")
