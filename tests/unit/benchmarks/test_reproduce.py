"""`make reproduce`: what every case must have, one run that dies and goes on, and whole pages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks import ROOT
from benchmarks.reproduce import sources
from benchmarks.reproduce.__main__ import compute, estimate, missing, outcomes
from benchmarks.reproduce.case import NONE_PRINTED, Case, Done, Figure, Form, Table
from benchmarks.reproduce.constants import CONSTANTS, Constant, chosen_on, key_of, values
from benchmarks.reproduce.job_sets import SETS
from benchmarks.reproduce.kept import Kept, Result
from benchmarks.reproduce.logs import LOGS
from benchmarks.reproduce.pages import (
    BLOCK,
    PAGES,
    MixedPageError,
    Outcome,
    Stamp,
    markers,
    page_text,
    write_page,
)
from benchmarks.reproduce.registry import all_cases, chosen
from benchmarks.reproduce.running import plan, run_parts
from benchmarks.reproduce.tables import NOT_EXAMINED, markdown
from benchmarks.support.drawing import Plot

from dlq_master.policy.registry.presets import PRESETS
from support.tiny_reproduction import DEADLY, NUMBERS, square, tiny

CASES = all_cases()
NAMES = [case.name for case in CASES]
SHORT_CPU_S = 27 * 60.0  # of two cores in 15 minutes, with some air
NIGHT_CPU_S = 2 * 8 * 3600.0
STAMP = Stamp("abc1234567", "2026-11-28", full=False)
PAGE = """# Squares

<!-- reproduce: stamp -->
<!-- reproduce: end -->

Prose.

<!-- reproduce: squares -->
old
<!-- reproduce: end -->
"""


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_case_has_forms_seeds_a_paper_and_its_place(case: Case) -> None:
    for form in (case.short, case.full):
        assert 1 <= form.seeds <= len(case.seeds)
        assert form.cpu_s > 0
    assert case.short.cpu_s <= case.full.cpu_s
    assert case.paper is NONE_PRINTED or any(case.paper.values())
    assert case.parts_of(full=False)
    headings = [line.lstrip("# ") for line in (PAGES / case.page).read_text().splitlines()]
    assert case.section in headings


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_case_says_on_which_jobs_it_is_judged_and_its_constants_were_chosen(case: Case) -> None:
    assert_sets_are_said(case)


def assert_sets_are_said(case: Case) -> None:
    """Names of `job_sets.SETS`. A sentence on in-sample results belongs to such results."""
    assert case.judged_on
    assert {*case.judged_on, *case.fitted_on} <= set(SETS)
    assert case.also_fitted or not case.in_sample


def test_every_default_of_dlq_says_on_which_jobs_it_was_chosen() -> None:
    said = {one.name for one in CONSTANTS if one.where == "preset dlq"}
    assert said == set(PRESETS["dlq"].defaults)
    assert values().keys() == {key_of(one) for one in CONSTANTS}
    assert len(values()) == len(CONSTANTS)


@pytest.mark.parametrize("one", CONSTANTS, ids=key_of)
def test_a_constant_has_a_ground_and_known_sets(one: Constant) -> None:
    assert {*one.fitted_on, *one.judged_on} <= set(SETS)
    assert one.ground
    assert bool(one.fitted_on) == bool(one.judged_on)


def test_a_table_of_a_method_counts_the_jobs_that_its_constants_were_chosen_on() -> None:
    assert "small-fitted" in chosen_on("dlq")
    assert "small-held-out" not in chosen_on("dlq")
    assert chosen_on("tiresias-las") == ()


def test_a_case_that_does_not_say_its_sets_is_refused(tmp_path: Path) -> None:
    assert_sets_are_said(tiny(tmp_path))
    for unsaid in ({"judged_on": ()}, {"judged_on": ("some jobs",)}, {"in_sample": "Why?"}):
        with pytest.raises(AssertionError):
            assert_sets_are_said(tiny(tmp_path, **unsaid))


# Tables of figures outside of markers, which are measured apart until they are cases.
BY_HAND = {
    "gpu-as-a-service.md": 3,
    "speed.md": 5,
}


def tables_of_figures(text: str) -> list[str]:
    """The heads of tables in which a third of the cells are numbers."""
    found = []
    for table in re.findall(r"(?m)(?:^ *\|.*\n)+", text):
        head, _, *rows = table.strip().splitlines()
        cells = [cell.strip() for row in rows for cell in row.strip(" |").split("|")]
        numbers = [cell for cell in cells if re.match(r"[*~+-]*\d[\d,.]*(?![\w)])", cell)]
        if 3 * len(numbers) > len(cells):
            found.append(head)
    return found


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_no_further_table_of_figures_is_written_by_hand(page: Path) -> None:
    found = tables_of_figures(BLOCK.sub("", page.read_text()))
    assert len(found) <= BY_HAND.get(page.name, 0), found


def test_a_table_of_words_is_no_table_of_figures() -> None:
    words = "| 3Sigma | here |\n|---|---|\n| 2 of its rules | a greedy one |\n| MILP | none |\n"
    assert tables_of_figures(words) == []
    assert tables_of_figures("Text\n\n| a | b |\n|---|---|\n| dlq | 1,200 s |\n") == ["| a | b |"]


def test_the_pages_have_a_marker_for_each_case_and_no_other() -> None:
    on_pages = {page.name: sorted(markers(page.read_text())) for page in PAGES.glob("*.md")}
    registered = {
        page: sorted(case.name for case in CASES if case.page == page) for page in on_pages
    }
    assert on_pages == registered
    assert {case.page for case in CASES} <= set(on_pages)


def test_the_short_form_of_all_fits_into_fifteen_minutes_and_the_whole_into_a_night(
    tmp_path: Path,
) -> None:
    for full, most_s in ((False, SHORT_CPU_S), (True, NIGHT_CPU_S)):
        here = [case for case in CASES if not missing(case, full)]
        parts = plan(here, full, Kept(tmp_path)).values()
        assert sum(part.cost_s for part in parts) <= most_s


def test_cases_are_chosen_by_name_or_by_page(tmp_path: Path) -> None:
    there = [tiny(tmp_path), tiny(tmp_path, name="other", page="more.md")]
    assert [case.name for case in chosen(["squares"], there)] == ["squares"]
    assert [case.name for case in chosen(["more.md"], there)] == ["other"]
    assert len(chosen([], there)) == 2
    with pytest.raises(ValueError, match="no case or page 'cubes'"):
        chosen(["cubes"], there)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_killed_midway_goes_on_with_what_it_kept(
    workers: int, tmp_path: Path
) -> None:
    (tmp_path / "kill").touch()
    case, kept = tiny(tmp_path), Kept(tmp_path / "kept")
    text = (
        "from pathlib import Path\n"
        "from benchmarks.reproduce.__main__ import compute\n"
        "from benchmarks.reproduce.kept import Kept\n"
        "from support.tiny_reproduction import tiny\n"
        "if __name__ == '__main__':\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        f"    compute([tiny(folder)], Kept(folder / 'kept'), False, {workers})\n"
    )
    script = tmp_path / "script.py"
    script.write_text(text)
    asked = [sys.executable, str(script)]
    killed = subprocess.run(
        asked, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}"}, capture_output=True, check=False
    )
    assert killed.returncode == (-9 if workers == 1 else 1), killed.stderr
    assert case.name not in outcomes([case], kept, STAMP)
    before = {
        number for number in NUMBERS
        if kept.get(sources.key(square, {"folder": str(tmp_path), "number": number}))
    }  # fmt: skip
    assert DEADLY not in before
    assert workers == 2 or before == {1, 2}
    begun = Counter(map(int, (tmp_path / "log").read_text().split()))

    (tmp_path / "kill").unlink()
    assert compute([case], kept, full=False, workers=1) == 0
    begun_later = Counter(map(int, (tmp_path / "log").read_text().split())) - begun
    assert begun_later == Counter(set(NUMBERS) - before)
    done = outcomes([case], kept, STAMP)[case.name].done
    assert [one.value for one in done] == [1, 4, 9, 16]


def test_a_part_that_raises_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    case, kept = tiny(tmp_path / "absent", paper=NONE_PRINTED), Kept(tmp_path)
    lines: list[str] = []
    failed = run_parts(list(plan([case], False, kept).values()), kept, 1, lines.append)
    assert [one.part.words["number"] for one in failed] == list(NUMBERS)
    assert lines[0].startswith("1 of 4: squares: ")
    assert "FAILED: FileNotFoundError" in lines[0]


def test_a_part_that_two_cases_share_is_computed_once(tmp_path: Path) -> None:
    cases = [tiny(tmp_path), tiny(tmp_path, name="again", short=Form(cpu_s=40))]
    assert len(plan(cases, False, Kept(tmp_path))) == len(NUMBERS)


def test_the_next_estimate_is_what_a_part_took(tmp_path: Path) -> None:
    case, kept = tiny(tmp_path), Kept(tmp_path)
    first, *_ = plan([case], False, kept).values()
    assert first.cost_s == 1.0
    kept.put(first.key._replace(how="other-sources"), Result(1, 9.5))
    assert kept.get(first.key) is None
    first, *_ = plan([case], False, kept).values()
    assert first.cost_s == 9.5


def test_an_estimate_has_measured_parts_and_declared_ones(tmp_path: Path) -> None:
    case, kept = tiny(tmp_path), Kept(tmp_path)
    first, *_ = plan([case], False, kept).values()
    kept.put(first.key, Result(1, 63.0))
    told = "short form: 1.1 CPU minutes in 4 parts; 1 of them were measured, 1.1 CPU minutes"
    assert estimate([case], kept, full=False) == told
    kept.put(first.key._replace(how="other-sources"), Result(1, 600.0))
    assert estimate([case], kept, full=False).startswith("short form: 10.1 CPU minutes in 4 parts")


def test_a_key_follows_words_inputs_and_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("a")
    key = sources.key(square, {"number": 1}, [str(file)])
    assert sources.key(square, {"number": 2}, [str(file)]).what != key.what
    file.write_text("b")
    sources.forget()
    assert sources.key(square, {"number": 1}, [str(file)]).how != key.how
    files = sources.files_of("benchmarks.reproduce.runs.matrix_cells")
    names = {path.relative_to(ROOT).as_posix() for path in files}
    assert "benchmarks/papers/deadline_cases.py" in names  # through another module
    assert "master/dlq_master/policy/size/knapsack.py" in names
    assert "benchmarks/reproduce/cases/every_preset.py" not in names  # sentences decide nothing
    before = sources.sources_digest(square.__module__)
    monkeypatch.setattr(sources, "DECIDE", sources.DECIDE[:-1])
    sources.forget()
    assert sources.sources_digest(square.__module__) != before
    sources.forget()


def test_a_source_that_changes_meanwhile_is_seen() -> None:
    module = "benchmarks.reproduce.runs.matrix_cells"
    newest_s = max(path.stat().st_mtime for path in sources.files_of(module))
    assert sources.changed_since([module], newest_s) == []
    assert sources.changed_since([module], newest_s - 1e-3) != []


def computed(case: Case, stamp: Stamp = STAMP) -> Outcome:
    """Without computing."""
    done = [Done(words, words["number"] ** 2) for words in case.parts_of(full=False)]
    return Outcome(case, stamp, done, {})


def test_a_page_has_papers_figure_ours_their_ratio_and_a_sentence(tmp_path: Path) -> None:
    text = page_text(PAGE, [computed(tiny(tmp_path))])
    assert "from commit abc1234567 on 2026-11-28: short form, 0.00 CPU minutes" in text
    assert "| number | square: paper / ours / ratio | where it differs, why |" in text
    assert "| 1 | 1 |  |\n| 2 | 4 / 4 / 1.00 |  |\n" in text
    assert "| 4 | 8 / 16 / 2.00 | The paper doubles. |" in text
    assert "seed 7; " in text
    assert "Prose." in text
    assert "old" not in text
    assert page_text(text, [computed(tiny(tmp_path))]) == text


def test_a_row_that_differs_without_a_sentence_is_told(tmp_path: Path) -> None:
    case = tiny(tmp_path, differs={})
    written = markdown(case, case.table(computed(case).done))
    assert written.unexplained == ["4"]
    assert f"| 4 | 8 / 16 / 2.00 | {NOT_EXAMINED} |" in written.text


def test_results_of_two_commits_or_forms_are_not_mixed(tmp_path: Path) -> None:
    page = PAGE + "\n<!-- reproduce: again -->\n<!-- reproduce: end -->\n"
    one, other = computed(tiny(tmp_path)), tiny(tmp_path, name="again")
    assert page_text(page, [one, computed(other)])
    for stamp in (STAMP._replace(commit="def"), STAMP._replace(full=True)):
        with pytest.raises(MixedPageError):
            page_text(page, [one, computed(other, stamp)])


def test_a_page_needs_the_markers_of_its_cases(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="markers are"):
        page_text(PAGE.replace("squares -->", "cubes -->"), [computed(tiny(tmp_path))])
    with pytest.raises(ValueError, match="has no end"):
        markers(PAGE + "<!-- reproduce: more -->\n")
    with pytest.raises(ValueError, match="one stamp"):
        markers(PAGE.replace("stamp", "squares"))


def test_in_sample_results_and_inputs_that_are_not_there_are_said(tmp_path: Path) -> None:
    fitted = {"fitted_on": ("own-480",), "in_sample": "Fitted to these."}
    case = tiny(tmp_path, **fitted, inputs=("build/traces/none.csv",))
    assert "**In-sample** on own-480. Fitted to these." in page_text(PAGE, [computed(case)])
    other = tiny(tmp_path, fitted_on=("tiresias-60",))
    text = page_text(PAGE, [computed(other)])
    assert "In-sample" not in text
    assert "judged on own-480; constants chosen on tiresias-60" in " ".join(text.split())
    found = outcomes([case], Kept(tmp_path), STAMP)
    text = page_text(PAGE, list(found.values()))
    assert "Left out: `build/traces/none.csv` is not there." in text
    assert "| number |" not in text


def test_a_log_is_a_sample_or_the_file_that_a_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LOGS["philly"]
    case = tiny(tmp_path, logs=("philly",))
    monkeypatch.delenv(log.variable, raising=False)
    assert case.inputs_of(full=False) == (str(ROOT / log.sample),)
    assert (ROOT / log.sample).is_file()
    found = outcomes([case], Kept(tmp_path), STAMP._replace(full=True))
    text = page_text(PAGE, list(found.values()))
    assert f"Left out: `{log.variable}` does not name a file: {log.about}." in text
    monkeypatch.setenv(log.variable, str(tmp_path / "none.csv"))
    assert missing(case, full=True).startswith(f"`{log.variable}` names a file that is not there")
    (tmp_path / "none.csv").write_text("whole")
    assert case.inputs_of(full=True) == (str(tmp_path / "none.csv"),)
    assert missing(case, full=True) == ""


def test_a_module_that_is_not_installed_leaves_a_table_out(tmp_path: Path) -> None:
    assert missing(tiny(tmp_path, modules=("json",)), full=False) == ""
    absent = tiny(tmp_path, modules=("no_such_module",))
    assert missing(absent, full=False) == "the Python module `no_such_module` is not installed"


def test_a_figure_has_a_caption_with_its_commit_and_the_same_bytes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.reproduce.pages.PAGES", tmp_path)
    (tmp_path / "squares.md").write_text(PAGE)
    plot = Plot("number", "square, units", {"ours": [(1, 1), (2, 4)]}, printed={"paper": [(2, 4)]})
    case = tiny(tmp_path, figure=Figure("Squares over numbers.", lambda _done: [plot]))
    write_page("squares.md", [computed(case)], tmp_path)
    text, picture = (tmp_path / "squares.md").read_text(), tmp_path / "squares.svg"
    assert "![Squares over numbers.](squares.svg)" in text
    assert "*Squares over numbers. Crosses are figures that the paper prints." in text
    assert "Commit abc1234567, short form.*" in text
    first = picture.read_bytes()
    assert b"square, units" in first
    write_page("squares.md", [computed(case)], tmp_path)
    assert picture.read_bytes() == first


def test_without_matplotlib_a_page_says_that_its_figure_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.reproduce.pages.can_draw", lambda: False)
    case = tiny(tmp_path, figure=Figure("Squares.", lambda _done: []))
    text = page_text(PAGE, [computed(case)])
    assert "The figure is left out: matplotlib is not installed." in text
    assert "squares.svg" not in text


def test_every_picture_beside_the_pages_is_the_figure_of_a_case() -> None:
    drawn = {f"{case.name}.svg" for case in CASES if case.figure is not None}
    assert {path.name for path in PAGES.glob("*.svg")} <= drawn


def test_a_figure_of_the_paper_without_a_row_of_ours_is_an_error(tmp_path: Path) -> None:
    case = tiny(tmp_path, paper={"5": {"square": 25.0}}, differs={})
    with pytest.raises(ValueError, match="no '5'"):
        markdown(case, Table({"square": ""}, {"1": {"square": 1.0}}))
