"""Convert, validate, inspect and plan on Google Cloud Storage give the same results as on a local disk."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from helpers.embedded import read, refs_of
from helpers.hostile import check_books, document, identity, picture, run
from helpers.packing import tree_members
from helpers.sketched_drawings import drawing
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy

from shardwright.core.plan.forecast import SAMPLE_IMAGES
from shardwright.core.report.gather import gather
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.plan import plan
from shardwright.pipelines.prepare import read_plan
from shardwright.pipelines.salvage import salvage
from shardwright.pipelines.validate import validate
from shardwright.schemas.dataset import SAMPLES_JPG

Capture = pytest.CaptureFixture[str]
SETTINGS = {"splits": "train=0.6,test=0.4", "shards": "train=3,test=1", "resize": 24, "verify": "none"}


@pytest.fixture(scope="module")
def _converted(_shared: Bucket, google_client: object, _proxy: Proxy) -> Bucket:
    output = Bucket(google_client)
    with pytest.MonkeyPatch.context() as patch, drawing():
        patch.setenv("STORAGE_EMULATOR_HOST", _proxy.url)
        convert(input=f"{_shared.url}/small", output=f"{output.url}/out", **SETTINGS)
    return output


@pytest.fixture
def converted(_converted: Bucket, proxy: Proxy) -> Bucket:
    """A bucket with a dataset of the small tree in `out/`; read only."""
    return _converted


@pytest.fixture(scope="module")
def on_disk(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same dataset, built on the local disk."""
    output = tmp_path_factory.mktemp("local") / "out"
    with drawing():
        convert(input=tree, output=output, **SETTINGS)
    return output


def test_a_conversion_from_bucket_to_bucket_gives_the_same_dataset(
    converted: Bucket, on_disk: Path, tmp_path: Path
) -> None:
    fetched = converted.fetch("out", tmp_path)
    assert identity(fetched).keys() == identity(on_disk).keys()
    assert document(fetched)["fingerprint"] == document(on_disk)["fingerprint"]
    assert check_books(fetched).keys() == check_books(on_disk).keys()
    assert set(converted.names("out/")) == tree_members(on_disk).keys() | {"_work/lease.json"}, (
        "a lease that was given back stays, empty"
    )
    for name, digest in identity(on_disk).items():
        if not name.startswith("_shards/") and name not in ("dataset.json", "quarantine.jsonl"):
            assert identity(fetched)[name] == digest, name
    assert (fetched / SAMPLES_JPG).read_bytes() == (on_disk / SAMPLES_JPG).read_bytes()


def test_a_whole_bucket_can_be_input_and_output(
    bucket: Bucket, google_client: object, tree: Path, small_local: Path
) -> None:
    bucket.put_tree(tree)
    output = Bucket(google_client)
    made = convert(input=bucket.url, output=output.url, shards=2)
    assert made.dataset.fingerprint == document(small_local)["fingerprint"]
    assert made.dataset.name == output.name
    assert "dataset.json" in output.names()
    assert validate(output.url + "/").sound


def test_validate_and_inspect_read_a_bucket(converted: Bucket, on_disk: Path, tmp_path: Path) -> None:
    dataset = f"{converted.url}/out"
    report = validate(dataset)
    assert report.sound and report.fingerprint == document(on_disk)["fingerprint"]
    assert json.loads(converted.get("out/findings.json"))["mode"] == "full"
    sheet = f"{converted.url}/sheets/sheet.png"
    found = inspect(dataset, contact_sheet=sheet, thumbnails=4)
    local = inspect(str(on_disk), contact_sheet=str(tmp_path / "sheet.png"), thumbnails=4)
    for key in ("fingerprint", "records", "labels", "splits", "damages"):
        assert found[key] == local[key], key
    assert found["contact_sheet"]["thumbnails"] == 4
    assert converted.get("sheets/sheet.png") == (tmp_path / "sheet.png").read_bytes()


def test_foreign_files_in_a_bucket_can_be_validated(converted: Bucket) -> None:
    pattern = f"{converted.url}/out/train-*.tfrecord"
    report = validate(pattern)
    assert report.sound and report.shards == 3
    assert validate(f"{converted.url}/out/test-00000-of-00001.tfrecord").shards == 1
    found = inspect(pattern, records=1)
    assert [item["bytes"] for item in found["files"]] == [
        len(converted.get(f"out/train-0000{number}-of-00003.tfrecord")) for number in range(3)
    ]


def test_a_report_a_comparison_and_a_salvage_stay_in_the_bucket(
    bucket: Bucket, small_local: Path, tmp_path: Path
) -> None:
    bucket.put_tree(small_local, "out/")
    output, shard = f"{bucket.url}/out", min(path.name for path in small_local.glob("*.tfrecord"))
    validate(output, mode="fast", junit=f"{output}/ci/junit.xml")
    assert b"<testsuites" in bucket.get("out/ci/junit.xml")
    places = (output, str(bucket.fetch("out", tmp_path)))
    pictures = [list(gather(place).pictures.values()) for place in places]
    assert pictures[0] == pictures[1]
    diff(str(small_local), output, report=f"{bucket.url}/reports/diff.json")
    assert json.loads(bucket.get("reports/diff.json"))["images"]["unchanged"] == 12
    data = bytearray(bucket.get(f"out/{shard}"))
    data[40] ^= 1
    bucket.put(f"out/{shard}", bytes(data))
    assert salvage(output, f"{bucket.url}/saved").lost == 1
    assert json.loads(bucket.get("saved/lost.jsonl"))["shard"] == shard
    assert not validate(f"{bucket.url}/saved").findings
    assert not [name for name in bucket.names() if name.endswith(".tmp")]


def test_a_pattern_in_a_bucket_selects_files(converted: Bucket, on_disk: Path, tmp_path: Path) -> None:
    found = []
    for place in (str(on_disk), f"{converted.url}/out"):
        refs, ids = refs_of(f"{place}/train-*", tmp_path / "spool")
        found.append(([(ref.key, ref.label, ref.split, read(ref)) for ref in refs], ids))
    assert found[0] == found[1] and {split for _, _, split, _ in found[0][0]} == {"train"}


def test_plan_reads_a_bucket(shared: Bucket, converted: Bucket, tree: Path, proxy: Proxy) -> None:
    with proxy.watch():
        made = plan(input=f"{shared.url}/small", **SETTINGS)
    assert set(proxy.counts()) == {"list", "media"}
    assert made.as_json() == plan(input=str(tree), **SETTINGS).as_json()


def test_options_can_name_files_in_a_bucket(shared: Bucket, bucket: Bucket) -> None:
    bucket.put("names.txt", b"bee\nant\n")
    made = convert(
        input=f"{shared.url}/small/", output=f"{bucket.url}/one/", class_names=f"{bucket.url}/names.txt",
        shards=2, resize=8, verify="none",
    )  # fmt: skip
    assert made.dataset.labels == ("bee", "ant") and made.dataset.name == "one"
    plans = [read_plan(f"{bucket.url}/{place}") for place in ("one", "one/dataset.json")]
    assert plans == [made.dataset.plan] * 2


@pytest.mark.parametrize("option", ["plan_from", "class_names"])
def test_missing_files_in_a_bucket_are_reported(
    capfd: Capture, shared: Bucket, bucket: Bucket, tree: Path, tmp_path: Path, option: str
) -> None:
    argv = ("convert", "--input", tree, "--output", tmp_path / "out")
    done = run(capfd, *argv, f"--{option}={bucket.url}/none")
    assert done.code == 2 and f"--{option} {bucket.url}/none" in done.err and "no such object" in done.err
    done = run(capfd, *argv, f"--{option}=gs://no-such-bucket/none")
    assert done.code in (2, 3) and "there is no bucket no-such-bucket" in done.err
    assert not (tmp_path / "out").exists()


def test_each_image_takes_one_request_beside_the_sample_and_many_run_at_once(
    bucket: Bucket, google_client: object, proxy: Proxy, tmp_path: Path
) -> None:
    images = 70
    for number in range(images):
        bucket.put(f"in/c{number % 3}/{number}.png", picture(number))
    output = Bucket(google_client)

    def slow(request: object) -> Fault | None:
        return Fault("delay", 0.05) if request.kind == "media" and "in/" in request.name else None

    with proxy.watch(slow, page_size=20):
        convert(input=f"{bucket.url}/in", output=f"{output.url}/out", shards=1, verify="none")
    reads = Counter(name for name in proxy.names("media") if name.startswith("in/"))
    assert len(reads) == images and set(reads.values()) == {1, 2}
    assert reads.total() == images + SAMPLE_IMAGES  # the sample of the plan is read on its own
    assert set(proxy.counts(bucket.name)) == {"media", "list"}
    assert proxy.counts(bucket.name)["list"] < 60  # 8 pages, and the probes of --source auto
    assert proxy.max_in_flight["media"] >= 16
    stats = [name for name in proxy.names("stat") if not name.endswith("_work/lease.json")]
    assert len(stats) <= 2
