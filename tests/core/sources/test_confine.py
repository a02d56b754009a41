"""`--confine`: whatever names an image, nothing outside the input is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.embedded import png, table_of, write_parquet
from helpers.listing import look_at
from PIL import Image

from shardwright.core.sources.inputs import recognize
from shardwright.core.sources.listing import Confinement, input_parts, list_part
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.source import Context, Input
from shardwright.core.sources.spool import Spool
from shardwright.pipelines import cli
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef


def _listed(path: Path, **values: Any) -> list[tuple[str, str]]:
    """Returns the file name and the reason for leaving it out, for every image that a conversion lists."""
    settings = ConvertSettings(input=(str(path),), **values)
    settings.check()
    item = recognize(Input(str(path), ""), look_at(path), settings)
    context = Context(settings, Spool(str(path.parent.parent)), make_rules(settings, (), 0))
    return [
        (os.path.basename(found.uri), found.reason)
        for part in input_parts([item], context)
        for found in list_part(part, context)
        if isinstance(found, ImageRef)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An input folder with images inside and outside, and links in both directions."""
    for path in ("in/inner.png", "in/images/deep.png", "out/secret.png", "in-beside/near.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (len(path), 0, 0)).save(tmp_path / path)
    (tmp_path / "in" / "link_out.png").symlink_to("../out/secret.png")
    (tmp_path / "in" / "link_in.png").symlink_to("images/deep.png")
    (tmp_path / "in" / "folder_out").symlink_to("../out")
    return tmp_path / "in"


INSIDE = ("inner.png", "images/deep.png", "./images/../inner.png", "link_in.png")
OUTSIDE = (
    "../out/secret.png", "images/../../in-beside/near.png", "link_out.png", "folder_out/secret.png",
    "{base}/out/secret.png",
)  # fmt: skip


def _manifest(place: Path, paths: tuple[str, ...]) -> Path:
    lines = [path.format(base=place.parent) for path in paths]
    (place / "rows.csv").write_text("path,label\n" + "".join(f"{path},a\n" for path in lines))
    return place / "rows.csv"


def test_paths_of_a_manifest_stay_in_its_folder(place: Path) -> None:
    rows = _manifest(place, INSIDE + OUTSIDE)
    assert {reason for _, reason in _listed(rows)} == {""}
    reasons = [reason for _, reason in _listed(rows, confine=True)]
    assert reasons == [""] * len(INSIDE) + ["UNREADABLE"] * len(OUTSIDE)


def test_paths_named_by_the_command_itself_are_allowed(place: Path) -> None:
    rows = _manifest(place, ("secret.png", "../in-beside/near.png"))
    root = str(place.parent / "out")
    found = _listed(rows, confine=True, image_root=root)
    assert found == [("secret.png", ""), ("near.png", "UNREADABLE")]


def test_paths_in_rows_with_images_are_confined(place: Path) -> None:
    table = table_of([png(1), None, None], [None, "../out/secret.png", "inner.png"], label=list("aaa"))
    path = write_parquet(place / "rows.parquet", table, compression="none")
    found = _listed(path, confine=True)
    assert found == [("rows.parquet", ""), ("secret.png", "UNREADABLE"), ("inner.png", "")]


def test_other_annotation_files_are_confined_too(place: Path) -> None:
    images = [{"id": 1, "file_name": "inner.png", "width": 8, "height": 8}]
    images += [{"id": 2, "file_name": "link_out.png", "width": 8, "height": 8}]
    coco = place / "boxes.json"
    coco.write_text(json.dumps({"images": images, "annotations": [], "categories": [{"id": 1, "name": "a"}]}))
    found = _listed(coco, confine=True, layout="detection", source="coco")
    assert found == [("inner.png", ""), ("link_out.png", "UNREADABLE")]


def test_yolo_is_confined(place: Path) -> None:
    (place / "data.yaml").write_text("train: ../out\nval: images\nnames: [a]\n")
    found = dict(_listed(place / "data.yaml", confine=True, layout="detection"))
    assert found["secret.png"] == "UNREADABLE" and found["deep.png"] == ""


def test_links_in_class_folders_stay_inside(place: Path) -> None:
    (place / "images" / "out.png").symlink_to("../../out/secret.png")
    assert ("out.png", "UNREADABLE") in _listed(place, confine=True, folders="classes")


def test_masks_and_buckets_are_confined(place: Path) -> None:
    context = Context(ConvertSettings(confine=True), Spool(str(place / "_work")))
    local = Confinement(Input(str(place), ""), context)
    for mask, reason in ((str(place / "mask.png"), ""), (str(place.parent / "out" / "m.png"), "UNREADABLE")):
        annotations = Annotations(semantic_mask=mask).encode()
        ref = ImageRef(key="k", uri=str(place / "inner.png"), annotations=annotations)
        assert local.check(ref).reason == reason
    assert not local.holds("gs://bucket/x.png") and not local.holds("a\0b")
    remote = Confinement(Input("gs://bucket/rows.csv", "", is_file=True), context)
    assert remote.holds("gs://bucket/deep/x.png")
    for path in ("gs://bucket-2/x.png", "s3://bucket/x.png", "/etc/passwd", "rows.csv"):
        assert not remote.holds(path)


def test_a_conversion_and_a_job_file_can_be_confined(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _manifest(place, ("inner.png", "link_out.png"))
    job = tmp_path / "job.yaml"
    job.write_text(f"input: {rows}\noutput: {tmp_path}/made\nconfine: true\nmax_bad_fraction: 1\n")
    assert cli.main(["convert", "--job", str(job), "--verify=none"]) == 0
    (entry,) = map(json.loads, (tmp_path / "made" / "quarantine.jsonl").read_text().splitlines())
    assert entry["reason"] == "UNREADABLE" and "--confine" in entry["message"]
    assert entry["message"].startswith(f"it lies outside of {place}")
    assert json.loads((tmp_path / "made" / "run.json").read_text())["listing"] == {"confine": "true"}
    assert cli.main(["validate", str(tmp_path / "made"), "--against", str(rows)]) == 0
    capsys.readouterr()
