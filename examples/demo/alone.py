"""A demo as a program: in a directory of its own, of which nothing is left unless something went
wrong.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import processes
from dlq_common.errors import DlqError
from proof import ProofFailed


def keeps() -> bool:
    """Whether KEEP=1 asks to leave its directory."""
    return os.environ.get("KEEP") == "1"


def perform_alone(name: str, show: Callable[[Path], None]) -> int:
    """The exit code: 0 only if `show` held all that it claims."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # else the daemons would outlive the demo
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)
    root = Path(tempfile.mkdtemp(prefix=f"dlq-{name}-"))
    try:
        show(root)
    except (ProofFailed, TimeoutError, DlqError, subprocess.SubprocessError) as failure:
        processes.kill_all(root)
        print(f"demo failed: {failure}\nthe logs are in {root}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        processes.kill_all(root)
        shutil.rmtree(root)
        print("\ninterrupted; nothing of it is left", file=sys.stderr)
        return 130
    except BaseException:
        processes.kill_all(root)
        raise
    if not keeps():
        shutil.rmtree(root)
    return 0
