"""The report's comparison with another dataset shows only differences, and no content breaks it."""

from __future__ import annotations

from shardwright.transforms.report.drift_view import drift_view


def test_only_differing_findings_and_measures_are_shown() -> None:
    view = drift_view(
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
    assert view is not None
    assert [tuple(row) for row in view.quality] == [
        ("DARK", "1.00%", "50.00%"),
        ("LIGHT", "20.00%", "10.00%"),
    ]
    assert view.measures == (("width.mean", "224", "128.25"),)


def test_a_comparison_of_another_version_has_fewer_tables() -> None:
    for strange in ({}, {"quality": [1], "statistics": "x", "images": None}, {"quality": {"DARK": 3}}):
        view = drift_view(strange)
        assert view is not None and view.quality == view.measures == ()
    assert drift_view(None) is None
