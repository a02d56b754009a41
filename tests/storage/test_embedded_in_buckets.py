"""Images inside Parquet and Arrow files in a bucket give the same records as on a local disk."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from helpers.embedded import HUGGING_FACE, png, read, refs_of, table_of, write_arrow, write_parquet
from helpers.records import examples
from helpers.storage.buckets import Bucket

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert

_IMAGES = [png(number) for number in range(20)]
_LABELS = [("cat", "dog")[number % 2] for number in range(20)]


@pytest.mark.parametrize("name", ["hub", "saved", "snappy", "lz4", "jsonl"])
def test_rows_in_a_bucket_are_read(bucket: Bucket, tmp_path: Path, name: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    table = table_of(_IMAGES, label=_LABELS)
    if name == "snappy":
        write_parquet(source / "rows.parquet", table, row_group_size=6)
    elif name == "lz4":
        write_arrow(source / "rows.arrow", table, compression="lz4")
    elif name == "jsonl":
        rows = zip(_IMAGES, _LABELS, strict=True)
        texts = ({"image": base64.b64encode(data).decode(), "label": label} for data, label in rows)
        (source / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    else:
        source = HUGGING_FACE / name
    bucket.put_tree(source, "in/")
    here, _ = refs_of(source, tmp_path / "spool")
    there, _ = refs_of(f"{bucket.url}/in", tmp_path / "spool")
    assert [(ref.key, ref.label, ref.split, ref.version) for ref in there] == [
        (ref.key, ref.label, ref.split, ref.version) for ref in here
    ]
    assert [read(ref) for ref in there] == [read(ref) for ref in here]


@pytest.mark.slow
def test_compressed_rows_are_converted_from_bucket_to_bucket(bucket: Bucket, tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "rows.parquet", table_of(_IMAGES, label=_LABELS), row_group_size=6)
    bucket.put("in/rows.parquet", source.read_bytes())
    convert(input=source, output=tmp_path / "here")
    convert(input=f"{bucket.url}/in/rows.parquet", output=f"{bucket.url}/out")
    bucket.fetch("out", tmp_path / "there")
    assert examples(tmp_path / "there") == examples(tmp_path / "here")
    assert not [name for name in bucket.names("out/") if "spool" in name]
    against = ("--against", f"{bucket.url}/in/rows.parquet")
    assert main(["validate", "--dataset", str(tmp_path / "there"), *against]) == 0
