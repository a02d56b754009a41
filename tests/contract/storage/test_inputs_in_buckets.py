"""Inputs in buckets: few requests, one per member, one generation, and no object is read beyond its limit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from helpers.embedded import png, table_of, write_arrow, write_parquet
from helpers.listing import listed, look_at
from helpers.packing import PACKERS, by_key, list_refs, read_all, tar_of, tree_members, zip_of
from helpers.storage.buckets import Bucket
from helpers.storage.imitation import Imitation
from helpers.storage.proxy import Fault, Proxy
from helpers.storage.scripted import Request, Response
from helpers.trees import put_files

from shardwright.core import storage
from shardwright.core.images.read import read_image
from shardwright.core.sources import input_probe
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import all_sources
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef


def requests(proxy: Proxy, name: str) -> int:
    """Returns the number of requests for the bytes of an object."""
    return proxy.names("media").count(name)


@pytest.mark.slow
def test_what_was_unpacked_is_gone_again(bucket: Bucket, tree: Path) -> None:
    bucket.put("in/a.tar.gz", PACKERS[".tar.gz"](tar_of(tree_members(tree))))
    convert(input=f"{bucket.url}/in", output=f"{bucket.url}/out")
    before = set(bucket.names())
    assert not [name for name in before if "spool" in name]
    assert validate(f"{bucket.url}/out", against=f"{bucket.url}/in").counts == {}
    assert set(bucket.names()) - before <= {"out/findings.json", "out/report.html"}


def test_images_of_rows_are_copied_into_the_output_bucket_and_removed(bucket: Bucket, tmp_path: Path) -> None:
    table = table_of([png(number) for number in range(12)], label=["ant", "bee"] * 6)
    files = (write_parquet(tmp_path / "rows.parquet", table), write_arrow(tmp_path / "rows.arrow", table))
    for file in files:
        bucket.put(f"in/{file.name}", file.read_bytes())
    places = (*files, *(f"{bucket.url}/in/{file.name}" for file in files))
    inputs = [f"{i}={place}" for i, place in enumerate(places)]
    made = convert(input=inputs, output=f"{bucket.url}/out", verify="none")
    assert made.dataset.ledger["written"] == 48
    assert not [name for name in bucket.names() if "spool" in name]


def test_archives_are_listed_and_read_with_few_requests(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    members = {f"ant/{i}.png": bytes([i]) * 200_000 for i in range(20)}
    for name, data in (("a.zip", zip_of(members, 0)), ("a.tar", tar_of(members))):
        bucket.put(f"{name}", data)
        proxy.requests.clear()
        refs = by_key(list_refs(f"{bucket.url}/{name}"))
        # The directory of a zip is read at once; a tar is read in growing blocks, because its members are
        # small.
        assert requests(proxy, name) <= (4 if name == "a.zip" else 8)
        proxy.requests.clear()
        assert read_all(refs) == {f"{name}!{key}": value for key, value in members.items()}
        assert requests(proxy, name) == len(members)


def test_large_members_are_skipped_when_headers_are_read(bucket: Bucket, proxy: Proxy) -> None:
    members = {f"ant/{i}.png": bytes(3_000_000) for i in range(5)}
    bucket.put("a.tar", tar_of(members))
    proxy.requests.clear()
    assert len(list_refs(f"{bucket.url}/a.tar")) == 5
    assert requests(proxy, "a.tar") <= 8


FOLDERS = 10


def test_class_folders_are_listed_once_and_at_the_same_time(bucket: Bucket, proxy: Proxy) -> None:
    for number in range(3 * FOLDERS):
        bucket.put(f"in/{number % FOLDERS}/{number}.jpg", b"x")

    def slow(request: object) -> Fault | None:
        return Fault("delay", 0.1) if request.kind == "list" else None

    probe = InputProbe(f"{bucket.url}/in", is_file=False)
    with proxy.watch(slow):
        accepted = [source.name for source in all_sources() if source.accepts(probe, ConvertSettings())]
    assert accepted and accepted[0] == "class_folders"
    assert sorted(proxy.names("list")) == sorted({"in/", *(f"in/{name}/" for name in range(FOLDERS))})
    assert proxy.max_in_flight["list"] >= FOLDERS // 2


@pytest.mark.parametrize("listed", [1, 3, 4, 20_000])
def test_a_look_at_a_bucket_finds_what_a_look_at_a_disk_finds(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    names = ["a.json", "b/1.jpg", "b/c/2.jpg", "d.jpg", "e.jpg", "f.csv", "g/3.jpg", "h/i/4.jpg"]
    bucket.put_tree(put_files(tmp_path, dict.fromkeys(names, b"x")), "in/")
    monkeypatch.setattr(input_probe, "LISTED", listed)
    disk, remote = look_at(tmp_path), InputProbe(f"{bucket.url}/in", is_file=False)
    with proxy.watch(lambda _: None, page_size=2):
        assert remote.folders == disk.folders == ("b", "g", "h")
        assert remote.files == disk.files[:listed]
        inside = remote.folders_inside(["b", "g", "h"])
    with proxy.watch(lambda _: None):
        assert [(probe.files, probe.folders) for probe in inside] == [
            (probe.files[:listed], probe.folders) for probe in disk.folders_inside(["b", "g", "h"])
        ]
        assert remote.folders_inside(["g", "b"]) == [inside[1], inside[0]]
    assert not proxy.names("list")


def test_a_file_with_the_name_of_a_folder_is_not_the_folder(bucket: Bucket) -> None:
    for name in ("in/a", "in/a/1.jpg"):
        bucket.put(name, b"x")
    probe = InputProbe(f"{bucket.url}/in", is_file=False)
    assert (probe.files, probe.folders) == (("a",), ("a",))
    assert probe.inside("a").files == ("1.jpg",)


@pytest.mark.parametrize(
    "files",
    [{"classes.txt": b"cat", "a.txt": b"0 .5 .5 .2 .2"}, {"a.json": b'[{"image":"a.png","annotations":[]}]'}],
)
def test_a_file_with_the_name_of_the_input_is_not_the_input(bucket: Bucket, files: dict[str, bytes]) -> None:
    for name, data in {
        "": b"",
        "/a.png": png(1),
        **{f"/{name}": data for name, data in files.items()},
    }.items():
        bucket.put(f"in{name}", data)
    assert listed(f"{bucket.url}/in").refs["a.png"].is_candidate


def test_a_listing_that_ends_early_knows_no_folders(bucket: Bucket, proxy: Proxy) -> None:
    for name in ("in/a.jpg", "in/b.jpg", "in/c/1.jpg", "in/d.jpg"):
        bucket.put(name, b"x")
    with proxy.watch(lambda _: None, page_size=1):
        assert storage.list_level(f"{bucket.url}/in/", 2) == (["a.jpg", "b.jpg"], None)
    assert storage.list_level(f"{bucket.url}/in", 2) == (["a.jpg", "b.jpg"], ["c"])


LIMIT = 10**6
SMALL = bytes(1000)


def test_a_large_object_is_not_read_to_its_end(imitation: Imitation) -> None:
    small, huge = imitation.holding(SMALL), imitation.holding(bytes(40 * LIMIT))

    def script(request: Request) -> Response:
        """Ends the connection early: who reads a large object to its end fails."""
        return huge(request)._replace(only=3 * LIMIT) if "huge" in request.path else small(request)

    with imitation.serve(script):
        assert read_image(ImageRef("small.jpg", imitation.path("small.jpg")), LIMIT) == SMALL
        with pytest.raises(ImageFault, match=r"more than 1.0 MB; raise --max_bytes") as caught:
            read_image(ImageRef("huge.jpg", imitation.path("huge.jpg")), LIMIT)
        assert caught.value.reason == "TOO_LARGE"


def test_worker_processes_learn_which_read_images_are_left_out(bucket: Bucket, tmp_path: Path) -> None:
    pictures = {f"ant/{number}.png": png(number) for number in range(8)}
    for name, data in pictures.items():
        bucket.put(f"in/{name}", data)
    opt_out = tmp_path / "opt_out.txt"
    opt_out.write_text(f"{hashlib.sha256(pictures['ant/3.png']).hexdigest()}\n")
    made = convert(
        input=f"{bucket.url}/in", output=str(tmp_path / "out"), exclude=f"@{opt_out}",
        beam_options=["--pool=processes"],
    )  # fmt: skip
    ledger = made.dataset.ledger
    assert (ledger["written"], ledger["filtered"], ledger["quarantined"]) == (7, 1, 0)
    assert ledger["reasons"]["filtered"] == {"excluded": 1}
