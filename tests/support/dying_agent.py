"""An agent process that starts one job and then waits to be killed.

Run as `python -m support.dying_agent STATE_DIR HOLD_S SCRIPT`; prints the attempt's key.
"""

import sys
import threading
from pathlib import Path

from support.process_box import ProcessBox, tree_for_tests


def main(state_dir: str, hold_s: str, script: str) -> None:
    box = ProcessBox(Path(state_dir), tree=tree_for_tests("none"))
    handle = box.sh(script, hold_s=float(hold_s), grace_s=0.2)
    sys.stdout.write(f"{handle.key}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
