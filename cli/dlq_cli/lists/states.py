"""The states that `-t` takes: our words and Slurm's codes."""

from __future__ import annotations

from dlq_cli.lists.slurm_states import FAILURES
from dlq_cli.words import SHOWN_STATES, SLURM_CODES
from dlq_common.errors import InvalidRequest
from dlq_common.text.suggest import did_you_mean


def parse_states(text: str | None) -> list[str]:
    """The state words of `running,queued` or `R,PD`; InvalidRequest for others. A trial is a
    running job too.
    """
    words: dict[str, None] = {}
    for part in (text or "").split(","):
        word = part.strip()
        if not word:
            continue
        coded = [state for state, code in SLURM_CODES.items() if code == word.upper()]
        coded += ["failed"] if word.upper() in FAILURES else []
        known = [word.lower()] if word.lower() in SHOWN_STATES else coded
        if not known:
            raise InvalidRequest(
                f"-t: there is no state {word[:64]!r}{did_you_mean(word, SHOWN_STATES)}",
                hint="states: " + ", ".join(SHOWN_STATES),
            )
        words.update(dict.fromkeys(known))
        if "running" in known:  # so does a job whose run time is being measured
            words["profiling"] = None
    return list(words)
