"""Amazon S3 through Beam's file systems, on moto's server."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import document, outcomes, run, run_command, sentence_of
from helpers.storage.amazon import S3

from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms import storage
from shardwright.transforms.images.read import read_image
from shardwright.transforms.storage import range_listing
from shardwright.transforms.storage import s3 as s3_storage
from shardwright.transforms.storage.listings import ListedPage

Capture = pytest.CaptureFixture[str]


def test_convert_overwrite_and_validate_work_on_s3(
    capfd: Capture, s3: S3, small_local: Path, tmp_path: Path
) -> None:
    output = f"{s3.url}/out"
    argv = ("convert", "--input", f"{s3.url}/small", "--output", output, *s3.options)
    done = run(capfd, *argv, "--shards=5")
    assert done.code == 0, done
    assert "holds a dataset" in sentence_of(run(capfd, *argv), 2)
    done = run(capfd, *argv, "--shards=2", "--overwrite")
    assert done.code == 0, done
    assert json.loads(s3.get("out/dataset.json"))["fingerprint"] == document(small_local)["fingerprint"]
    local = {path.relative_to(small_local).as_posix() for path in small_local.rglob("*") if path.is_file()}
    assert set(s3.names("out/")) == local
    done = run(capfd, "validate", "--dataset", output, *s3.options)
    assert done.code == 0 and "Sound" in done.out, done
    sheet = tmp_path / "sheet.png"
    done = run(capfd, "inspect", output, "--json", "--contact_sheet", sheet, *s3.options)
    assert done.code == 0 and json.loads(done.out)["fingerprint"] == document(small_local)["fingerprint"]
    assert sheet.stat().st_size


@pytest.mark.slow
def test_resume_works_on_s3(capfd: Capture, s3: S3, small_local: Path) -> None:
    argv = ("convert", "--input", f"{s3.url}/small", "--output", f"{s3.url}/out", "--shards=2", *s3.options)
    assert run(capfd, *argv, "--resume").code == 0
    s3._client.delete_object(Bucket=s3.name, Key="out/dataset.json")
    s3.put("out/train-00001-of-00002.tfrecord", b"broken")
    assert run(capfd, *argv, "--resume").code == 0
    assert json.loads(s3.get("out/_work/outcome.json"))["reused_shards"] == 1
    assert json.loads(s3.get("out/dataset.json"))["fingerprint"] == document(small_local)["fingerprint"]


def test_odd_objects_are_handled(capfd: Capture, s3: S3, tree: Path, tmp_path: Path) -> None:
    for name in ("with space", "per%cent", "hash#", "[x]", "star*", "é"):
        s3.put(f"small/ant/{name}.jpg", (tree / "ant" / "000.jpg").read_bytes())
    s3.put("small/ant/", b"")
    s3.put("small/ant/empty.png", b"")
    s3.put("small/ant/empty", b"")
    s3.put("small/ant/text", b"text")
    argv = ("convert", "--input", f"{s3.url}/small", "--output", tmp_path / "out", "--max_bad_fraction=0.2")
    done = run(capfd, *argv, *s3.options)
    assert done.code == 0, done
    found = outcomes(tmp_path / "out")
    assert found.pop("ant/empty.png") == "EMPTY_FILE"
    assert found.pop("ant/empty") == found.pop("ant/text") == "not_an_image"
    assert set(found.values()) == {"written"} and len(found) == 18


def test_an_object_replaced_since_its_listing_stops_the_job(s3: S3) -> None:
    storage.use_options(PipelineOptions(list(s3.options)))
    path = f"{s3.url}/small/ant/000.jpg"
    listed = next(item for item in storage.list_objects(s3.url) if item.path == path)
    ref = ImageRef(key="ant/000.jpg", uri=path, size=listed.size, version=listed.version)
    assert len(read_image(ref, 10**6)) == listed.size == storage.size_of(path)
    s3.put("small/ant/000.jpg", b"another")
    with pytest.raises(EngineError, match="changed while the job was reading"):
        read_image(ref, 10**6)
    storage.remove(path)
    with pytest.raises(ImageFault, match="no such object"):
        read_image(ref, 10**6)
    with pytest.raises(FileNotFoundError):
        storage.size_of(path)


def test_a_missing_boto3_is_reported(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, s3: S3, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "boto3.exceptions", None)
    done = run(capfd, "plan", "--input", f"{s3.url}/small", *s3.options)
    assert "s3:// needs boto3; install it with `pip install" in sentence_of(done, 2)


def test_wrong_credentials_are_reported(
    capfd: Capture, monkeypatch: pytest.MonkeyPatch, s3: S3, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = [option for option in s3.options if "key" not in option]
    done = run(capfd, "plan", "--input", f"{s3.url}/small", *options)
    assert "there are no credentials for S3; run `aws configure`" in sentence_of(done, 3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "argv",
    [
        ("convert", "--input", "s3://no-such-bucket/in", "--output", "{out}"),
        ("convert", "--input", "{tree}", "--output", "s3://no-such-bucket/out"),
        ("validate", "--dataset", "s3://no-such-bucket/out"),
        ("inspect", "s3://no-such-bucket/out"),
    ],
)
def test_a_missing_bucket_is_reported(
    capfd: Capture, s3: S3, tree: Path, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    done = run(capfd, *(part.format(out=tmp_path / "out", tree=tree) for part in argv), *s3.options)
    assert "no-such-bucket" in sentence_of(done, 3)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_installed_command_works_with_worker_processes(s3: S3, small_local: Path) -> None:
    workers = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    argv = ("convert", "--input", f"{s3.url}/small", "--output", f"{s3.url}/out", "--shards=2", *s3.options)
    done = run_command(*argv, *workers)
    assert done.code == 0, done
    assert json.loads(s3.get("out/dataset.json"))["fingerprint"] == document(small_local)["fingerprint"]


@pytest.mark.slow
def test_a_large_folder_is_listed_in_ranges(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.use_options(PipelineOptions(list(s3.options)))
    for number in range(60):
        s3.put(f"in/{number // 50}/caf\u00e9 {number:04}.jpg", b"")
        s3.put(f"in/{number:04}.jpg", b"")
    s3.put("in/\U0001f600.jpg", b"")
    begun = list[str]()
    real = s3_storage.list_pages

    def list_pages(directory: str, deep: bool = True, after: str = "") -> Iterator[ListedPage]:
        begun.append(after)
        return real(directory, deep, after)

    monkeypatch.setattr(s3_storage, "list_pages", list_pages)
    monkeypatch.setattr(range_listing, "_PAGES_ALONE", 1)
    client = s3_storage._client()
    few = functools.partial(client.list_objects_v2, MaxKeys=4)
    monkeypatch.setattr(s3_storage, "_client", lambda: SimpleNamespace(list_objects_v2=few))
    folder = f"{s3.url}/in"
    for deep in (True, False):
        begun.clear()
        found = [*storage.list_objects(folder, deep, requests=4)]
        assert len(begun) > 2 and sorted(found) == sorted(storage.list_objects(folder, deep))
        assert len(found) == (121 if deep else 61)
    assert storage.list_folders(folder) == ["0", "1"]
