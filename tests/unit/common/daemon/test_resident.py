"""Memory that only the start needed: code alone is let go of, and it runs again."""

from __future__ import annotations

import subprocess
import sys

from dlq_common.daemon.resident import code_ranges

MAPS = """\
55d0-55d2 r--p 00000000 fe:00 11 /usr/bin/python3.11
7f00-7f10 r-xp 00001000 fe:00 12 /usr/lib/libpython3.11.so.1.0
7f10-7f20 r--p 00011000 fe:00 12 /usr/lib/libpython3.11.so.1.0
7f20-7f30 rw-p 00021000 fe:00 12 /usr/lib/libpython3.11.so.1.0
7f30-7f40 rwxp 00000000 00:00 0
7f40-7f50 r-xp 00000000 00:00 0 [vdso]
7f50-7f60 r-xp 00000000 00:00 0
"""

PROGRAM = """
import ctypes.util, decimal, json
from dlq_common.daemon.resident import give_back

def code_kib():
    kib, code = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            code = " r-xp " in line and "/" in line
        elif code and line.startswith("Rss:"):
            kib += int(line.split()[1])
    return kib

before = code_kib()
give_back()
after = code_kib()
assert json.loads("[1]") == [1] and decimal.Decimal(2) == 2  # what is gone comes again
print(after < before)
"""


def test_only_code_of_files_is_let_go_of() -> None:
    assert list(code_ranges(MAPS)) == [(0x7F00, 0x10)]


def test_pages_of_code_go_and_come_again() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("True\n", "")
