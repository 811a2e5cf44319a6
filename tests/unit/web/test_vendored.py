"""Files of others are those of their packages, with their licence beside them, and in the wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VENDOR = ROOT / "web/dlq_web/pages/static/vendor"


def test_every_vendored_file_has_its_recorded_sum() -> None:
    folders = [path for path in VENDOR.iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        lines = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
        recorded = {name: told for told, name in lines}
        ours = {"SHA256SUMS", "ORIGIN.md"}
        there = {path.name for path in folder.iterdir()} - ours
        assert there == set(recorded)
        for name, told in recorded.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == told, name


def test_every_vendored_folder_has_its_licence_and_is_in_the_notice() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for folder in VENDOR.iterdir():
        assert (folder / "LICENSE").exists()
        assert folder.relative_to(ROOT).as_posix() in notice


def test_the_notice_is_whole() -> None:
    assert "<<<<<<<" not in (ROOT / "NOTICE").read_text()
