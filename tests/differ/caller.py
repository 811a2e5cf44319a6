"""Runs commands of dlq as an account that cannot read this installation.

    python -I caller.py UID GID DIRECTORY < lines of JSON (words) > lines of JSON (code, out, err)

It imports all that a command may need, becomes the account for good, and then takes commands. The
fast front's server does the same.
"""

from __future__ import annotations

import encodings.ascii
import encodings.idna
import encodings.latin_1
import encodings.unicode_escape
import encodings.utf_8_sig  # noqa: F401  # files that are read when they are first used
import json
import os
import sys
import traceback
from pathlib import Path


def main() -> None:
    """Until stdin ends."""
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
    from dlq_cli.front.server import import_all
    from support.cli_run import Dlq, Said

    import_all()
    uid, gid, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    os.chdir(directory)
    answers = os.fdopen(os.dup(1), "w")
    dlq = Dlq(Path(directory) / ".dlq", dict(os.environ))
    for line in sys.stdin:
        try:
            said = dlq(*json.loads(line), patience_s=20.0)
        except Exception:  # noqa: BLE001  # its text is the answer, which no Slurm gives
            said = Said(-1, "", traceback.format_exc())
        answers.write(json.dumps([said.code, said.out, said.err]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
