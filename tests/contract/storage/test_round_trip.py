"""Conversions to Google Cloud Storage: the same as on a disk, objects appear whole, datasets never mix."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from helpers.depths import findings_of
from helpers.embedded import read, refs_of
from helpers.hostile import check_books, document, identity, picture, run, sentence_of
from helpers.light_commands import drawing
from helpers.packing import tree_members
from helpers.storage.buckets import Bucket
from helpers.storage.proxy import Fault, Proxy, Request, Retries, always, flaky, for_good
from PIL import Image

from shardwright.core import storage
from shardwright.core.plan.forecast import SAMPLE_IMAGES
from shardwright.core.report.gather import gather
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.pipelines.inspect import inspect
from shardwright.pipelines.plan import plan
from shardwright.pipelines.prepare import read_plan
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import RebuildResult
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
    with proxy.watch(always(Fault("delay", 0.05), "media", "in/"), page_size=20):
        convert(input=f"{bucket.url}/in", output=f"{output.url}/out", shards=1, verify="none")
    reads = Counter(name for name in proxy.names("media") if name.startswith("in/"))
    assert len(reads) == images and set(reads.values()) == {1, 2}
    assert reads.total() == images + SAMPLE_IMAGES  # the sample of the plan is read on its own
    assert set(proxy.counts(bucket.name)) == {"media", "list"}
    assert proxy.counts(bucket.name)["list"] < 60  # 8 pages, and the probes of --source auto
    assert proxy.max_in_flight["media"] >= 16
    stats = [name for name in proxy.names("stat") if not name.endswith("_work/lease.json")]
    assert len(stats) <= 2


_MULTIPART_BYTES = 8 << 20


def test_each_object_is_written_once_and_the_commit_last(
    shared: Bucket, bucket: Bucket, proxy: Proxy
) -> None:
    with proxy.watch(), drawing():
        convert(input=f"{shared.url}/small", output=f"{bucket.url}/out", shards=2)
        lease = "out/_work/lease.json"
        requests = [request for request in proxy.requests if request.bucket == bucket.name]
        kinds = [request.kind for request in requests if request.name != lease]
        written = [name for name in proxy.names("upload") if name != lease]
        leases = [request.kind for request in requests if request.name == lease]
    assert leases.count("upload") <= 4, "taken, taken by the job, renewed for the commit, and given back"
    assert bucket.get(lease) == b"", "given back"
    assert Counter(written) == Counter({*bucket.names(), "out/_work/probe"} - {lease}), (
        "something was written twice"
    )
    assert written[-1] == "out/dataset.json"
    after = kinds[len(kinds) - kinds[::-1].index("upload") :]
    assert set(after) == {"media"}, "the commit comes last, then it is read"
    assert not {"begin", "chunk", "copy"} & set(kinds)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose pixels take 9 MB."""
    root = tmp_path_factory.mktemp("noise")
    (root / "ant").mkdir()
    for number in range(3):
        pixels = os.urandom(1000 * 1000 * 3)
        Image.frombytes("RGB", (1000, 1000), pixels).save(root / "ant" / f"{number}.bmp")
    return root


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bad", [False, True])
def test_a_large_shard_is_uploaded_in_parts(bucket: Bucket, proxy: Proxy, noise: Path, bad: bool) -> None:
    with proxy.watch(flaky(3) if bad else None):
        made = convert(input=noise, output=f"{bucket.url}/out", shards=1, image_format="raw")
    name, data = "out/train-00000-of-00001.tfrecord", bucket.get("out/train-00000-of-00001.tfrecord")
    (shard,) = made.dataset.splits["train"]
    assert len(data) > _MULTIPART_BYTES and hashlib.sha256(data).hexdigest() == shard.sha256
    assert name not in proxy.names("upload")
    if not bad:
        assert proxy.names("begin") == [name] and proxy.names("chunk") == [name]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "fault", [Fault("flip_upload"), Fault("lose"), Fault("status", 410), Fault("status", 404)]
)
def test_a_large_upload_survives_a_fault(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, proxy: Proxy, tmp_path: Path, fault: Fault
) -> None:
    monkeypatch.setattr("shardwright.core.storage.store.PART_BYTES", 1 << 20)
    data = os.urandom(_MULTIPART_BYTES + 100_000)
    file = tmp_path / "shard.tmp"
    file.write_bytes(data)
    chunks = iter(range(1000))
    with proxy.watch(lambda request: fault if request.kind == "chunk" and next(chunks) == 4 else None):
        storage.move_into_place(str(file), f"{bucket.url}/shard")
    assert hashlib.sha256(bucket.get("shard")).digest() == hashlib.sha256(data).digest()
    assert not file.exists()


_IMAGES, _SHARDS, _SIDE = 36, 6, 64
#: Size of the pixels in an image's record.
_RECORD = 3 * _SIDE * _SIDE
_ALTERED = "in/a/000.png"


@pytest.fixture
def source(bucket: Bucket) -> Bucket:
    """A bucket with images in `in/`."""
    for number in range(_IMAGES):
        bucket.put(f"in/{'ab'[number % 2]}/{number:03d}.png", picture(number, size=_SIDE))
    return bucket


def _rebuild(source: Bucket) -> RebuildResult:
    return rebuild(
        input=f"{source.url}/in", output=f"{source.url}/out", shards=_SHARDS, image_format="raw", resize=_SIDE
    )


def _uploaded(proxy: Proxy) -> Counter[str]:
    """Returns the number of bytes uploaded for each file, in any version."""
    sent: Counter[str] = Counter()
    for request in proxy.requests:
        if request.kind in ("upload", "begin", "chunk"):
            sent[request.name.rpartition("/")[2]] += request.sent
    return sent


def _of_shards(sent: Counter[str]) -> Counter[str]:
    return Counter({name: size for name, size in sent.items() if name.endswith(".tfrecord")})


@pytest.mark.slow
def test_uploaded_bytes_are_proportional_to_the_changes(source: Bucket, proxy: Proxy) -> None:
    with proxy.watch():
        first = _rebuild(source)
        whole = _uploaded(proxy)
    assert len(_of_shards(whole)) == _SHARDS
    assert sum(_of_shards(whole).values()) > _IMAGES * _RECORD
    names = {name for name in source.names(f"out/versions/{first.version}/") if name.endswith(".tfrecord")}

    with proxy.watch():
        assert not _rebuild(source).changed
        unchanged = _uploaded(proxy)
    assert not _of_shards(unchanged) and not proxy.names("copy")
    assert sum(unchanged.values()) < _RECORD, "a lease, a pointer, what was done: no more than that"

    source.put(_ALTERED, picture(255, size=_SIDE))
    with proxy.watch():
        second = _rebuild(source)
        sent = _uploaded(proxy)
        copied = set(proxy.names("copy"))
    work = second.outcome["work"]
    assert (work["reused_shards"], work["converted"]) == (_SHARDS - 1, 1)
    (shard,) = _of_shards(sent)
    assert sent[shard] <= whole[shard] * 1.01, "the shard that changed goes up once"
    made = {f"out/versions/{second.version}/{name}" for name in names - {shard}}
    assert made <= copied, "the storage copies the others by itself"
    # Each shard has other files with it; the number of documents of a version does not depend on its size.
    ledgers = {name for name in sent if name.endswith((".jsonl.gz", ".idx", ".index")) and "-of-" in name}
    assert ledgers and all(name.startswith(shard.removesuffix(".tfrecord")) for name in ledgers), ledgers
    documents = sum(whole.values()) - sum(_of_shards(whole).values())
    assert sum(sent.values()) - sent[shard] < 1.5 * documents, "the same documents, and a diff"


MARK = "_work/replacement/"


@pytest.fixture(scope="module")
def old_local(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of more shards, built on the local disk."""
    return Path(convert(input=tree, output=tmp_path_factory.mktemp("old") / "out", shards=5).path)


def state_of(bucket: Bucket) -> str:
    """Returns what a reader sees: the fingerprint of a whole dataset, or nothing; never a mixture."""
    generations = bucket.generations()
    if "out/dataset.json" not in generations:
        return _tfds_sees(bucket)
    made = bucket.document("out")
    shards = [shard for split in made["splits"].values() for shard in split["shards"]]
    files = made["sidecars"] | {shard["file"]: shard["sha256"] for shard in shards}
    for name, sha256 in files.items():
        assert _sha256_of(bucket, f"out/{name}", generations.get(f"out/{name}")) == sha256, name
    return str(made["fingerprint"])


@functools.cache
def _sha256_of(bucket: Bucket, name: str, generation: int | None) -> str:
    return hashlib.sha256(bucket.get(name)).hexdigest()


def _tfds_sees(bucket: Bucket) -> str:
    """Checks that TFDS, which ignores dataset.json, opens a whole dataset or none; returns ""."""
    names = bucket.names("out/")
    if "dataset_info.json" in names:
        (split,) = json.loads(bucket.get("out/dataset_info.json"))["splits"]
        shards = len(split["shardLengths"])
        files = {f"{split['name']}-{number:05d}-of-{shards:05d}.tfrecord" for number in range(shards)}
        assert files == {name for name in names if name.endswith(".tfrecord") and MARK not in name}
    return ""


def test_overwriting_removes_all_old_files(
    shared: Bucket, bucket: Bucket, proxy: Proxy, small_local: Path, old_local: Path
) -> None:
    output, old = f"{bucket.url}/out", document(old_local)["fingerprint"]
    bucket.put_tree(old_local, "out/")
    bucket.put("out/train.labels.txt", b"of a version before")
    bucket.put("outside.txt", b"")
    bucket.put("out-other/file", b"")
    seen = {old: 0}
    mixtures = []

    def rule(request: Request) -> None:
        if request.kind in ("delete", "copy", "upload") and request.bucket == bucket.name:
            proxy.rule = None
            try:
                state = state_of(bucket)
                seen[state] = seen.get(state, 0) + 1
            except AssertionError as error:  # raising it here would only end the proxy's answer
                mixtures.append(error)
            finally:
                proxy.rule = rule

    with proxy.watch(rule):
        new = convert(
            input=f"{shared.url}/small", output=output, shards=2, overwrite=True
        ).dataset.fingerprint
        finals = [r for r in proxy.requests if r.kind == "copy" and r.name.startswith("out/")]
    assert not mixtures, mixtures[0]
    assert set(seen) == {old, "", new} or set(seen) == {old, ""}
    assert finals[-1].name == "out/dataset.json"
    assert new == document(small_local)["fingerprint"]
    assert set(bucket.names("out/")) == tree_members(small_local).keys() | {"_work/lease.json"}, (
        "a lease that was given back stays, empty"
    )
    assert {"outside.txt", "out-other/file"} <= set(bucket.names())
    assert not findings_of(output)


@pytest.mark.parametrize(
    "cut",
    [
        "copy out/dataset.json",
        pytest.param("delete out/dataset.json", marks=pytest.mark.slow),
        pytest.param("copy out/train", marks=pytest.mark.slow),
        pytest.param("delete out/_work", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_replacement_never_shows_a_mixture(
    capfd: Capture, retries: Retries, shared: Bucket, bucket: Bucket, proxy: Proxy,
    small_local: Path, old_local: Path, cut: str,
) -> None:  # fmt: skip
    output = f"{bucket.url}/out"
    bucket.put_tree(old_local, "out/")
    old, new = (document(path)["fingerprint"] for path in (old_local, small_local))
    kind, name = cut.split()

    def rule(request: Request) -> Fault | None:
        is_cut = request.kind == kind and request.name.startswith(name) and "probe" not in request.name
        return Fault("drop") if is_cut else None

    argv = ("convert", "--input", f"{shared.url}/small", "--output", output, "--shards=2")
    with proxy.watch(for_good(rule, retries)):
        sentence = sentence_of(run(capfd, *argv, "--overwrite"), 3)
    assert "Google Cloud Storage does not answer" in sentence and "--resume" in sentence
    assert state_of(bucket) in (old, "", new)
    retries.as_usual()
    assert run(capfd, *argv, "--resume").code == 0
    assert state_of(bucket) == new
    assert not [item for item in bucket.names() if MARK in item]
    stale = [item for item in bucket.names("out/") if "of-00005" in item]
    assert not stale
