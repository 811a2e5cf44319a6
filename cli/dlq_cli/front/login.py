"""The login session of systemd in which a server of commands lives.

After a logout a session stays open while any process is in it, and so does the user's own systemd.
So a server ends when its session is closing, and the next command of another session starts another
server. Elsewhere there is no such session, and the server ends for other reasons only.
"""

from __future__ import annotations

import re
from pathlib import Path

SESSIONS = Path("/run/systemd/sessions")
OWN = Path("/proc/self/cgroup")
_SCOPE = re.compile(r"/session-([A-Za-z0-9]+)\.scope$", re.MULTILINE)


class LoginSession:
    """The session of this process, where there is one."""

    def __init__(self, own: Path = OWN, sessions: Path = SESSIONS) -> None:
        self._place = None
        try:
            found = _SCOPE.search(own.read_text())
        except OSError:
            return
        place = sessions / found[1] if found is not None else None
        if place is not None and place.exists():  # in a container it is not there
            self._place = place

    def is_over(self) -> bool:
        """Whether its user has logged out."""
        if self._place is None:
            return False
        try:
            return "STATE=closing" in self._place.read_text().splitlines()
        except FileNotFoundError:
            return True
        except OSError:
            return False
