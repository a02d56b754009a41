"""The tables of benchmarks, and the page that is generated from their history."""

from __future__ import annotations

from pathlib import Path

import pytest
from history import append_run
from page import PAGE, Page, generate
from results import Result, Run, result_of
from tables import caption, number, one_table, pivot, with_range

_MACHINE = {"CPU": "a processor", "cores": "2", "Python": "3.11.9", "load": "0.1"}
_FOLDER = result_of("folder", "time", "s", [1.0, 1.5, 2.0])
_TAR = result_of("tar", "time", "s", [3.0, 3.0, 3.0], 2.0, "folder")


def run_of(*results: Result, when: str = "2026-11-21T08:00:00Z", size: str = "full") -> Run:
    return Run("archives", size, "3 images", results, when=when, commit="abc", machine=_MACHINE)


def test_the_page_is_what_the_generator_makes_of_text_and_history() -> None:
    assert PAGE.read_text() == generate(), "run make bench-docs"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3, "3"), (0.01234, "0.012"), (3.456, "3.46"), (45.67, "45.7"), (2405.6, "2,406")],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_range_is_written_where_there_is_one() -> None:
    assert with_range(_FOLDER) == "1.50 (1-2)"
    assert with_range(_TAR) == "3"


def test_a_run_becomes_a_table_of_subjects_and_measures() -> None:
    run = run_of(_FOLDER, _TAR, result_of("tar", "peak", "MB", [200.0]))
    run.problems["zip"] = "not installed"
    assert pivot(run).splitlines() == [
        "|  | time, s | / folder | peak, MB |",
        "|---|---:|---:|---:|",
        "| folder | 1.50 (1-2) |  |  |",
        "| tar | 3 | 2.00 | 200 |",
        "| zip | not installed |  |  |",
    ]
    assert pivot(run, measures=["peak"], subjects=["tar"]).splitlines()[2] == "| tar | 200 |"


def test_ratios_to_several_subjects_name_theirs() -> None:
    run = run_of(_FOLDER, _TAR, result_of("zip", "time", "s", [6.0], 3.0, "tar"))
    assert pivot(run).splitlines()[2:] == [
        "| folder | 1.50 (1-2) |  |",
        "| tar | 3 | 2.00 / folder |",
        "| zip | 6 | 3.00 / tar |",
    ]


def test_groups_with_the_same_base_share_a_column() -> None:
    results = [
        result_of(f"{order}: {name}", "time", "s", [3.0], 1.5, f"{order}: tf.data")
        for order in ("in order", "shuffled")
        for name in ("tf.data", "TFDS")
    ]
    assert pivot(run_of(*results)).splitlines()[0] == "|  | time, s | / tf.data |"


def test_a_caption_says_what_when_and_where() -> None:
    facts = "medians of 3 runs with least and most; 2026-11-21; commit abc; a processor, 2 cores; load 0.1"
    assert caption(run_of(_FOLDER)) == f"3 images; {facts}"
    assert caption(run_of(_FOLDER, size="quick"), "machine A").endswith("machine A; load 0.1; small size")


def test_the_one_table_marks_what_became_slower() -> None:
    before = run_of(_FOLDER, result_of("tar", "time", "s", [2.0, 2.0, 2.0]))
    now = run_of(_FOLDER, _TAR, when="2026-11-22T08:00:00Z")
    assert one_table([now], [before, now]).splitlines()[2:] == [
        "| archives | folder | time, s | 1.50 (1-2) |  | 1.00 |",
        "| archives | tar | time, s | 3 | 2.00 / folder | 1.50 slower |",
    ]


def test_places_are_filled_with_the_last_full_run() -> None:
    before, now = run_of(_FOLDER), run_of(_TAR, when="2026-11-22T08:00:00Z")
    quick = run_of(_FOLDER, when="2026-11-23T08:00:00Z", size="quick")
    page = Page([before, now, quick]).fill("text\n\n{{ table archives }}\n\n{{ machines }}\n")
    assert "| tar | 3 | 2.00 |\n\n*3 images; " in page
    assert "folder | 1" not in page
    assert "- machine A: a processor, 2 cores, Python 3.11.9" in page


def test_the_page_names_what_changed() -> None:
    slow = run_of(result_of("folder", "time", "s", [4.0]), when="2026-11-22T08:00:00Z")
    assert "No result" in Page([slow]).fill("{{ changes }}")
    changed = Page([run_of(_FOLDER), slow]).fill("{{ changes }}")
    assert "| archives | folder | time | 2.67 | slower | abc → abc |" in changed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ table unknown }}", "no run of unknown"),
        ('{{ table archives rows="a" }}', "unknown words rows"),
        ('{{ table archives subjects="zip" }}', "no such results"),
        ("{{ figure archives }}", "not known"),
    ],
)
def test_a_place_that_cannot_be_filled_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    append_run(run_of(_FOLDER), tmp_path / "history.jsonl")
    with pytest.raises(ValueError, match=message):
        generate(tmp_path / "page.md", tmp_path / "history.jsonl")
