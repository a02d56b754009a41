"""The tables of a comparison show only differences, and no content breaks them."""

from __future__ import annotations

from typing import Any

from shardwright.schemas.drift_tables import drift_tables


def rows_of(drift: dict[str, Any]) -> dict[str, list[tuple[object, ...]]]:
    return {table.title: table.rows for table in drift_tables(drift)}


def test_only_differing_findings_and_measures_are_shown() -> None:
    rows = rows_of(
        {
            "quality": {
                "DARK": {"old": 0.01, "new": 0.5},
                "LIGHT": {"old": 0.2, "new": 0.1},
                "BLURRY": {"old": 0.1, "new": 0.1},
                "GRAYSCALE": {"old": None, "new": 0.1},
            },
            "statistics": {
                "total.all.width.mean": {"old": 224.0, "new": 128.25},
                "total.all.height.mean": {"old": 224.0, "new": 224.0},
                "total.all.width.max": {"old": 1, "new": 2},
                "total.all.pixels.per_image.mean.0": {"old": 1, "new": 2},
                "splits.train.all.width.mean": {"old": 1, "new": 2},
            },
        }
    )
    assert rows["Findings per record"] == [("DARK", "1.0000%", "50.0000%"), ("LIGHT", "20.0000%", "10.0000%")]
    assert rows["Measured on all images"] == [("width.mean", "224", "128.25")]


def test_images_are_counted_by_kind_and_split_with_some_of_their_keys() -> None:
    change = {"key": "b/x.png", "old": "a/x.png", "new": "b/x.png"}
    rows = rows_of(
        {
            "images": {
                "unchanged": 7,
                "renamed": 4,
                "splits": {"train": {"renamed": 4}},
                "listed": {"renamed": [change] * 4},
            }
        }
    )
    such_as = ", ".join(["a/x.png -> b/x.png"] * 3)
    assert rows["Images"] == [
        ("unchanged", 7, "", ""),
        ("renamed (same source, different key)", 4, 4, f"{such_as}, ..."),
    ]


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    classes = {"new": [f"class {i}" for i in range(25)]}
    (table,) = drift_tables({"classes": classes})
    assert (len(table.rows), table.more) == (20, 5)


def test_a_comparison_of_another_version_has_fewer_tables() -> None:
    for strange in ({}, {"quality": [1], "statistics": "x", "images": None}, {"quality": {"DARK": 3}}):
        assert drift_tables(strange) == []
