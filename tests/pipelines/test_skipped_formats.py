"""Formats that a user leaves out are filtered with their own reason; all others that are not read are bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import iso_files, pictures
from PIL import Image

from shardwright.pipelines.cli import main
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_formats import parse_formats
from shardwright.schemas.ledger import load_ledger
from shardwright.transforms.shards.shard_plan import recipes_of

PSD = b"8BPS\0\1" + bytes(range(200))


def _outcomes(output: Path) -> dict[str, str]:
    (ledger,) = (output / "_shards").glob("*.jsonl.gz")
    return {entry.key: entry.reason or entry.outcome for entry in load_ledger(ledger.read_bytes())[1]}


def test_skipped_formats_are_filtered_whatever_their_names_are(tmp_path: Path) -> None:
    picture = Image.fromarray(pictures.rgb_pixels(40, 30))
    files = {
        "ant/1.jpg": pictures.file_of(picture, "JPEG"),
        "ant/2.jxl": iso_files.jxl_of(picture),
        "ant/3.jp2": iso_files.jp2_of(picture),
        "bee/4.jpg": iso_files.jp2_of(picture),
        "bee/5.psd": PSD,
        "bee/6": PSD,
        "bee/7.jp2": pictures.file_of(picture, "PNG"),
        "bee/8.tga": b"\x0a\5\1\10 whatever",
    }
    for name, data in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    output = tmp_path / "out"
    given = ["convert", str(tmp_path / "in"), str(output), "--shards", "1", "--max_bad_fraction"]
    assert main([*given, "0.1"]) == 1  # three images are in formats that are not read
    assert main([*given, "0", "--skip_formats", "JP2, psd,tga", "--overwrite"]) == 0
    written, skipped = (
        ("ant/1.jpg", "ant/2.jxl", "bee/7.jp2"),
        ("ant/3.jp2", "bee/4.jpg", "bee/5.psd", "bee/6", "bee/8.tga"),
    )
    assert _outcomes(output) == {
        **dict.fromkeys(written, "written"),
        **dict.fromkeys(skipped, "skipped_format"),
    }
    dataset = json.loads((output / "dataset.json").read_text())
    assert dataset["plan"]["settings"]["skip_formats"] == "jpeg2000,psd,tga"
    assert dataset["ledger"]["filtered"] == 5 and dataset["ledger"]["quarantined"] == 0
    assert main(["validate", str(output)]) == 0


def test_formats_are_named_as_users_name_them() -> None:
    assert parse_formats("HEIC,.jxl, jpeg2000,Camera raw,DNG") == {
        "heif",
        "jpeg_xl",
        "jpeg2000",
        "camera_raw",
    }
    with pytest.raises(UsageError, match="there is no image format 'hiec'; did you mean heic"):
        ConvertSettings(input=("in",), skip_formats="hiec").check()


def test_datasets_without_the_setting_keep_their_digests() -> None:
    plain, skipping = (ConvertSettings(input=("in",), skip_formats=text).identity() for text in ("", "heic"))
    assert "skip_formats" not in plain
    assert recipes_of(plain, {}) != recipes_of(skipping, {})


def test_another_decoder_of_heif_changes_no_recipe() -> None:
    plain = ConvertSettings(input=("in",)).identity()
    assert recipes_of(plain, {"pillow": "1"}) == recipes_of(plain, {"pillow": "1", "pillow_heif": "2"})
