"""`validate --against` with the dataset and its source in buckets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.packing import PACKERS, tar_of, tree_members
from helpers.storage.buckets import Bucket

from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import FindingCode


@pytest.mark.slow
def test_a_compressed_archive_and_a_folder_are_compared(bucket: Bucket, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "birds", tmp_path / "in" / "birds")
    members = tree_members(tmp_path / "in")
    bucket.put("packed/a.tar.gz", PACKERS[".tar.gz"](tar_of(members)))
    bucket.put_tree(tmp_path / "in", "folder/")
    for name in ("packed", "folder"):
        dataset, source = f"{bucket.url}/out-{name}", f"{bucket.url}/{name}"
        convert(input=source, output=dataset, resize=32)
        before = bucket.names()
        report = validate(dataset, against=source)
        assert report.counts == {}
        results = {f"out-{name}/{file}" for file in ("findings.json", "report.html")}
        assert set(bucket.names()) - results == set(before) - results, "what was unpacked is gone again"
    bucket.delete("folder/birds/owl.jpg")
    bucket.put("folder/birds/dove.png", bucket.get("folder/birds/canary.png"))
    found = validate(f"{bucket.url}/out-folder", against=f"{bucket.url}/folder").findings
    assert {(finding.code, finding.key) for finding in found} == {
        (FindingCode.SOURCE_MISSING, "birds/owl.jpg"),
        (FindingCode.SOURCE_CHANGED, "birds/dove.png"),
    }
