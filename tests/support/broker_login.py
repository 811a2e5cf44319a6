"""Logging in at a master's broker as another account of this host, from a process of theirs. Root
only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlq_client.line.identity import Identity
from dlq_common.identity.pki import new_key_and_csr, parse_identity

# The system's own interpreter: other users may not look into the home of root.
SYSTEM_PYTHON = next(
    (path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()),
    sys.executable,
)
ASK_AS_ANOTHER = """
import json, os, socket, sys
path, csr, uid = sys.argv[1], sys.stdin.read(), int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
line = socket.socket(socket.AF_UNIX); line.connect(path)
line.sendall(json.dumps({"v": 1, "csr": csr, "uid": 0, "user": "root"}).encode() + b"\\n")
print(line.makefile().readline())
"""


def answer_to(uid: int, socket_path: Path, csr: bytes) -> dict[str, Any]:
    """What the broker answers to a process of this uid."""
    done = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-c", ASK_AS_ANOTHER, str(socket_path), str(uid)],
        input=csr.decode(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60.0,
    )
    return dict(json.loads(done.stdout))


def log_in(uid: int, socket_path: Path, founder: Identity, address: str) -> Identity:
    """The identity that the broker gives to this uid; AssertionError with its words when it
    refuses.
    """
    made = new_key_and_csr("x")
    answer = answer_to(uid, socket_path, made.request)
    assert "certificate" in answer, answer
    certificate = answer["certificate"].encode()
    who = parse_identity(certificate)
    return replace(
        founder,
        key=made.key,
        certificate=certificate,
        user=who.name,
        role=who.role.value,
        address=address,
    )
