"""Too many bad images: nothing is published, and the message explains how to publish anyway."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from helpers.hostile import Done, check_books, document, make_tree, run, sentence_of

Capture = pytest.CaptureFixture[str]


def bad_run(capfd: Capture, tmp_path: Path, bad: int, *options: object) -> Done:
    """Converts ten images, some of which are bad."""
    tree = make_tree(tmp_path / "in", images=10 - bad)
    (tree / "ant").mkdir(parents=True, exist_ok=True)
    for i in range(bad):
        (tree / "ant" / f"bad{i}.png").write_bytes(b"no image %d" % i)
    return run(capfd, "convert", "--input", tree, "--output", tmp_path / "out", "--shards=3", *options)


def test_exactly_at_the_threshold_passes(capfd: Capture, tmp_path: Path) -> None:
    assert bad_run(capfd, tmp_path, 3, "--max_bad_fraction=0.3").code == 0
    assert check_books(tmp_path / "out") and document(tmp_path / "out")["ledger"]["quarantined"] == 3


def test_too_many_bad_images_publish_nothing_and_resume_publishes_them(
    capfd: Capture, tmp_path: Path
) -> None:
    sentence = sentence_of(bad_run(capfd, tmp_path, 3, "--max_bad_fraction=0.29"), 1)
    output = tmp_path / "out"
    assert "3 of 10 images are bad (3 NOT_AN_IMAGE), more than --max_bad_fraction 0.29 allows" in sentence
    assert str(output / "quarantine.jsonl") in sentence and "--resume" in sentence
    assert len((output / "quarantine.jsonl").read_text().splitlines()) == 3
    assert not (output / "dataset.json").exists()
    before = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    argv = ("convert", "--input", tmp_path / "in", "--output", output, "--shards=3", "--resume")
    done = run(capfd, *argv, "--max_bad_fraction", "1")
    assert done.code == 0 and "3 shards reused from the previous run" in done.out
    assert {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")} == before
    assert len(before) == 3
    check_books(output)


@pytest.mark.parametrize("fraction", ["0.01", "1"])
def test_a_dataset_without_any_record_is_refused(capfd: Capture, tmp_path: Path, fraction: str) -> None:
    sentence = sentence_of(bad_run(capfd, tmp_path, 10, f"--max_bad_fraction={fraction}"), 1)
    assert "10 of 10 images are bad (10 NOT_AN_IMAGE): nothing was published" in sentence
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_an_output_with_a_slash_at_its_end_is_shown_with_one(capfd: Capture, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    (tree / "bee" / "bad.png").write_bytes(b"no image")
    argv = ("convert", "--input", tree, "--output", f"{tmp_path}/out/")
    assert f"Look at {tmp_path}/out/quarantine.jsonl;" in sentence_of(run(capfd, *argv), 1)
    done = run(capfd, *argv, "--resume", "--max_bad_fraction=1")
    assert f"see {tmp_path}/out/quarantine.jsonl\n" in done.out


def test_images_of_many_channels_need_not_be_converted(capfd: Capture, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    tifffile.imwrite(
        tree / "bee" / "bands.tif",
        np.ones((8, 8, 5), np.uint16),
        photometric="minisblack",
        planarconfig="contig",
    )
    argv = ("convert", "--input", tree, "--output", tmp_path / "out", "--depth=keep")
    sentence = sentence_of(run(capfd, *argv), 1)
    (line,) = (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines()
    assert "keep them with --channels 5" in line
    assert "; keep those of many channels with --channels 5, convert (to JPEG or PNG), fix or" in sentence
