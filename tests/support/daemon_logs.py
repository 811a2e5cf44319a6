"""What daemons have written, shown with the test that failed beside them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SHOWN_BYTES = 3_000  # of the end of each
_beside: list[Callable[[], list[Path]]] = []


@contextmanager
def shown_on_failure(logs: Callable[[], list[Path]]) -> Iterator[None]:
    """Whatever fails in the block, or in a test during the block, shows the ends of these files as
    they are by then.
    """
    _beside.append(logs)
    try:
        yield
    except BaseException as failure:
        for name, end in _ends(logs):
            failure.add_note(f"--- {name} ---\n{end}")
        raise
    finally:
        _beside.remove(logs)


def ends_of_logs() -> list[tuple[str, str]]:
    """Name and end of each file that is to be shown now."""
    return [end for logs in _beside for end in _ends(logs)]


def _ends(logs: Callable[[], list[Path]]) -> list[tuple[str, str]]:
    return [
        (f"end of {path.name}", path.read_bytes()[-SHOWN_BYTES:].decode(errors="replace"))
        for path in logs()
        if path.exists()
    ]
