"""Takes images out of podman's store: unused ones after a while, and more when room is short.

Only images that this agent has pulled are removed: they can be pulled again. Images that an
operator loaded, or named `localhost/...`, stay for ever. So do images that podman says a container
uses.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.runtimes.podman.client import PodmanClient, PodmanFailed
from dlq_nodeagent.runtimes.podman.records import ImageRecords

_LOCAL = "localhost/"
_ASK_S = 120.0
_LOOK_S = 3600.0
# A rank may be about to start with it.
_FRESH_S = 600.0

log = get_logger("nodeagent.images")


@dataclass(slots=True, kw_only=True)
class Clearing:
    """Thread-safe. `keep_s` 0: images go only when room is short."""

    client: PodmanClient
    records: ImageRecords
    clock: Clock
    keep_s: float
    in_use: Callable[[], frozenset[str]] = frozenset
    """Ids of the images of ranks that are not over; may be called from any thread."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Begin to look for old images now and then."""
        if self.keep_s:
            threading.Thread(target=self._look_again, name="images", daemon=True).start()

    def stop(self) -> None:
        """Look no more; waits for nothing."""
        self._stopped.set()

    def remove_old(self) -> None:
        """Remove images that no job has used for `keep_s`."""
        before_s = self.clock.now_s() - self.keep_s
        with self._lock:
            for image_id, used_s in self.records.least_recently_used():
                if used_s < before_s and not self._stopped.is_set():
                    self._remove(
                        image_id, f"not used for {(self.clock.now_s() - used_s) / 86_400:.1f} days"
                    )

    def make_room(self) -> bool:
        """Remove the image that was not used for longest; False: there was none to remove."""
        before_s = self.clock.now_s() - _FRESH_S
        with self._lock:
            oldest = self.records.least_recently_used()
            return any(
                used_s < before_s and self._remove(image_id, "room is short")
                for image_id, used_s in oldest
            )

    def _remove(self, image_id: str, why: str) -> bool:
        if image_id in self.in_use():
            return False
        names = self._names(image_id)
        if names is None or any(name.startswith(_LOCAL) for name in names):
            return False
        # By its names, if it has several: podman refuses an id then.
        what = names if len(names) > 1 else [image_id]
        try:
            self.client.ask("rmi", *what, timeout_s=_ASK_S)
        except PodmanFailed as failed:
            log.info("image_kept", image=image_id, why=failed.words)
            return False
        log.info("image_removed", image=image_id, names=names, why=why)
        self._forget(image_id)
        return True

    def _names(self, image_id: str) -> list[str] | None:
        """None: it is not in the store, or podman does not say."""
        try:
            said = self.client.ask(
                "image", "inspect", "--format={{json .RepoTags}}", image_id, timeout_s=_ASK_S
            )
        except PodmanFailed as failed:
            if failed.code is not None:  # another program has removed it
                self._forget(image_id)
            return None
        return list(json.loads(said) or [])

    def _forget(self, image_id: str) -> None:
        try:
            self.records.removed(image_id)
        except OSError as error:
            log.warning("image_not_forgotten", image=image_id, error=str(error))

    def _look_again(self) -> None:
        while not self._stopped.is_set():
            try:
                self.remove_old()
            except Exception:
                log.exception("images_not_cleared")  # the next look may go well
            self._stopped.wait(_LOOK_S)
