"""What of a master calls a provider, and waits: `python -m support.calling_master PROGRAM`."""

import sys

from dlq_master.providers.exec import ExecProvider

if __name__ == "__main__":
    ExecProvider("spot", sys.argv[1], timeout_s=3600.0).list()
