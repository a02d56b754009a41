"""The list of versions in a bucket is the same as on a disk, and needs few requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.storage.amazon import S3
from helpers.storage.buckets import Bucket

from shardwright.schemas.errors import EngineError
from shardwright.schemas.version import Pointer, VersionRecord, VersionState
from shardwright.transforms import storage
from shardwright.transforms.report.index_page import write_index

_VERSIONS = ("20261119T020000Z", "20261120T020000Z")


def test_versions_in_a_bucket_have_a_list(bucket: Bucket, tmp_path: Path) -> None:
    local = tmp_path / "pets"
    for version in _VERSIONS:
        directory = local / "versions" / version
        directory.mkdir(parents=True)
        record = VersionRecord(version, VersionState.PUBLISHED, 0, fingerprint="f" * 64, records=7)
        (directory / "version.json").write_text(record.dumps())
        (directory / "dataset.json").write_text("{}")
    (local / "versions" / _VERSIONS[1] / "report.html").write_text("")
    (local / "versions" / _VERSIONS[1] / "pinned.json").write_text("{}")
    (local / "latest.json").write_text(Pointer(_VERSIONS[1], "f" * 64, 0).dumps())
    bucket.put_tree(local, "pets/")
    write_index(str(local), 0)
    write_index(f"{bucket.url}/pets", 0)
    page = bucket.get("pets/index.html").decode()
    assert page == (local / "index.html").read_text().replace(str(local), f"{bucket.url}/pets")
    assert f'href="versions/{_VERSIONS[1]}/report.html"' in page and "pinned" in page
    assert f'href="versions/{_VERSIONS[0]}/report.html"' not in page


def test_a_browser_opens_the_pages_of_a_bucket(
    bucket: Bucket, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", FileSystems._pipeline_options)
    storage.use_options(PipelineOptions([*s3.options]))
    for one in (bucket, s3):
        write_index(f"{one.url}/pets")
        storage.write_bytes(f"{one.url}/pets/diff.json", b"{}")
        assert one.kind_of("pets/index.html") == "text/html"
        assert one.kind_of("pets/diff.json") == "application/json"


def test_a_missing_bucket_is_reported(bucket: Bucket) -> None:
    with pytest.raises(EngineError) as caught:
        write_index(f"{bucket.url}-gone/pets")
    assert "gone" in caught.value.message
