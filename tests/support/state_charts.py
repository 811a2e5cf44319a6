"""Writes docs/reference/states from the state tables: `python tests/support/state_charts.py`."""

from pathlib import Path

from dlq_master.control.attempts import blame
from support.state_pages import GENERATED, pages

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "states"


def all_pages() -> dict[str, str]:
    """File name -> text."""
    return pages() | {"causes.md": f"{GENERATED}\n\n{blame.page()}"}


def main() -> None:
    """Write every page; those that are fresh do not change."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in all_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
