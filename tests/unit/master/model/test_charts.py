"""The pages of docs/reference/states are what the tables say."""

import pytest

from support.state_charts import FOLDER, all_pages
from support.state_pages import pages


@pytest.mark.parametrize("name", sorted(all_pages()))
def test_the_page_is_fresh(name: str) -> None:
    fresh = all_pages()[name]
    assert (FOLDER / name).read_text(encoding="utf-8") == fresh, (
        "run: python tests/support/state_charts.py"
    )


def test_every_ended_state_of_a_job_leaves_the_diagram() -> None:
    text = pages()["job.md"]
    for state in ("completed", "failed", "cancelled", "timed_out"):
        assert f"{state} --> [*]" in text
