"""Secrets that must be nowhere: looked for as they are and as base64 writes them."""

import base64
import subprocess
from collections.abc import Iterable
from pathlib import Path


def forms_of(secret: str) -> list[str]:
    """The secret, and what any base64 of a text with it in it contains, wherever it begins
    there.
    """
    forms = [secret]
    for before in range(3):
        data = b"\0" * before + secret.encode()
        encoded = base64.b64encode(data[: len(data) // 3 * 3]).decode()
        forms.append(encoded[4:] if before else encoded)
    return forms


def files_with(secret: str, places: Iterable[Path | str]) -> list[str]:
    """The files at or below these places that contain the secret in any form."""
    patterns = [word for form in forms_of(secret) for word in ("-e", form)]
    found = subprocess.run(
        ["grep", "-rlFa", "--devices=skip", *patterns, *map(str, places)],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode > 1 and not found.stdout:
        missing = [place for place in places if not Path(place).exists()]
        assert not missing, f"not looked for in {missing}"
    return found.stdout.splitlines()
