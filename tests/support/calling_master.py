"""What of a master calls a provider, and waits: `python -m support.calling_master PROGRAM`."""

import sys

from dlq_common.daemon.config import Seconds
from dlq_master.control.pool_config import EXEC, PoolConfig
from dlq_master.providers.exec import ExecProvider

if __name__ == "__main__":
    pool = PoolConfig("spot", EXEC, "H100", 8, 10.0, program=sys.argv[1], timeout=Seconds(3600.0))
    ExecProvider(pool).list()
