"""Writes docs/states from the state tables: `python tests/support/state_charts.py`."""

from pathlib import Path

from dlq_master.model.chart import pages

FOLDER = Path(__file__).parents[2] / "docs" / "states"


def main() -> None:
    """Write every page; those that are fresh do not change."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
