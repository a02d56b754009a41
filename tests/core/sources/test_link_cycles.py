"""Links in a circle: `plan` and `convert` end, and each link is in the ledger."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from helpers.hostile import make_tree, outcomes

from shardwright.pipelines.cli import main

Capture = pytest.CaptureFixture[str]
#: The files in every tree of these tests, besides links.
IMAGES = ["ant/000.jpg", "ant/002.png", "bee/001.png", "bee/003.jpg"]


def circle(*paths: Path) -> None:
    """Creates links, each to the next one, and the last to the first."""
    for path, following in zip(paths, (*paths[1:], paths[0])):
        path.symlink_to(following)


def planned(source: Path, capsys: Capture) -> int:
    """Returns the number of files that `plan` lists."""
    assert main(["plan", "--input", str(source), "--json"]) == 0
    return sum(json.loads(capsys.readouterr().out)["listed"].values())


def converted(source: Path, output: Path, capsys: Capture) -> dict[str, str]:
    """Returns the outcome of each file."""
    assert main(["convert", "--input", str(source), "--output", str(output), "--max_bad_fraction", "1"]) == 0
    capsys.readouterr()
    return outcomes(output)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with four images in two classes."""
    make_tree(tmp_path / "in", images=4)
    return tmp_path / "in"


def test_circular_links_are_faults_or_filtered_and_end(source: Path, tmp_path: Path, capsys: Capture) -> None:
    """Nothing shows what links without the name of an image are."""
    expected = dict.fromkeys(IMAGES, "written")
    for place, length in itertools.product((".", "ant"), (1, 2, 3)):
        for suffix, outcome in ((".png", "UNREADABLE"), ("", "not_an_image")):
            links = [source / place / f"link{length}_{i}{suffix}" for i in range(length)]
            circle(*links)
            expected |= {str(link.relative_to(source)): outcome for link in links}
    for place, target in (("up", "."), ("ant/up", ".."), ("ant/here", "."), ("bee/out", "../..")):
        (source / place).symlink_to(target)
        expected[place] = "symlink_loop"
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "circle").symlink_to("..")
    (source / "bee" / "elsewhere").symlink_to("../../elsewhere/deep")
    expected["bee/elsewhere/circle/deep"] = "symlink_loop"
    listed = planned(source, capsys)
    found = converted(source, tmp_path / "out", capsys)
    assert listed == len(found)
    assert found == expected


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["", "nowhere"])
@pytest.mark.parametrize(
    "name", ["a.tar", "a.zip", "data.yaml", "metadata.csv", "labels.json", "a.tfrecord", "x.npy", "train"]
)
def test_circular_links_named_like_annotation_files_are_ignored(
    source: Path, tmp_path: Path, name: str, target: str, capsys: Capture
) -> None:
    (source / name).symlink_to(target or name)
    listed = planned(source, capsys)
    found = converted(source, tmp_path / "out", capsys)
    assert listed == len(found)
    assert {key: found[key] for key in IMAGES} == dict.fromkeys(IMAGES, "written")
    assert found.keys() - set(IMAGES) <= {name}


@pytest.mark.parametrize("name", ["in", "in.tar", "in.csv", "data.yaml"])
def test_a_circular_link_as_input_is_refused(tmp_path: Path, name: str, capsys: Capture) -> None:
    circle(tmp_path / name, tmp_path / "other")
    for command in (["plan"], ["convert", "--output", str(tmp_path / "out")]):
        assert main([*command, "--input", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err.strip()
        assert name in error and "Traceback" not in error and error.count("\n") == 0, error
    assert not (tmp_path / "out").exists()
