"""The process that serves: it is without what only the start of an agent needs."""

import json
import subprocess
import sys

NOT_NEEDED = {"cryptography", "ssl", "_hashlib", "cattrs", "attr", "click", "yaml", "tomllib"}
SHOW = """
import json, sys
from dlq_nodeagent.app import entry
entry(serves=True)
print(json.dumps([name for name, module in sys.modules.items() if module is not None]))
"""


def test_the_serving_process_has_no_library_that_only_the_start_needs() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "grpc" in loaded
    assert not loaded & NOT_NEEDED
