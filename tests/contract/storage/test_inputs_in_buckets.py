"""Inputs in buckets: listed in parts, with the states of objects, and none is read beyond its limit."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from helpers.annotation_sets.coco import coco_of, save
from helpers.annotation_sets.formats import FORMATS
from helpers.annotation_sets.json_exports import export
from helpers.embedded import png, table_of, write_arrow, write_parquet
from helpers.listing import listed, look_at, put_photos
from helpers.packing import PACKERS, by_key, list_refs, read_all, tar_of, tree_members, zip_of
from helpers.storage.buckets import Bucket
from helpers.storage.imitation import Imitation
from helpers.storage.proxy import Fault, Proxy, always
from helpers.storage.scripted import Request, Response
from helpers.trees import put_files
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from shardwright.core import storage
from shardwright.core.images.annotate import read_mask
from shardwright.core.images.read import read_image
from shardwright.core.sources import file_states, input_probe
from shardwright.core.sources.class_folders import FolderPart
from shardwright.core.sources.file_states import FileStates, with_states
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.source import Context, Input, all_sources, source_by_name
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables import files
from shardwright.pipelines.convert import convert
from shardwright.pipelines.validate import validate
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, UsageError
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
    bucket.put_files({file.name: file.read_bytes() for file in files}, "in/")
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
    bucket.put_files({f"in/{number % FOLDERS}/{number}.jpg": b"x" for number in range(3 * FOLDERS)})
    probe = InputProbe(f"{bucket.url}/in", is_file=False)
    with proxy.watch(always(Fault("delay", 0.1), "list")):
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
    bucket.put_files({"in/a": b"x", "in/a/1.jpg": b"x"})
    probe = InputProbe(f"{bucket.url}/in", is_file=False)
    assert (probe.files, probe.folders) == (("a",), ("a",))
    assert probe.inside("a").files == ("1.jpg",)


@pytest.mark.parametrize(
    "files",
    [{"classes.txt": b"cat", "a.txt": b"0 .5 .5 .2 .2"}, {"a.json": b'[{"image":"a.png","annotations":[]}]'}],
)
def test_a_file_with_the_name_of_the_input_is_not_the_input(bucket: Bucket, files: dict[str, bytes]) -> None:
    bucket.put_files({"in": b"", "in/a.png": png(1)})
    bucket.put_files(files, "in/")
    assert listed(f"{bucket.url}/in").refs["a.png"].is_candidate


def test_a_listing_that_ends_early_knows_no_folders(bucket: Bucket, proxy: Proxy) -> None:
    bucket.put_files(dict.fromkeys(("in/a.jpg", "in/b.jpg", "in/c/1.jpg", "in/d.jpg"), b"x"))
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
    bucket.put_files(pictures, "in/")
    opt_out = tmp_path / "opt_out.txt"
    opt_out.write_text(f"{hashlib.sha256(pictures['ant/3.png']).hexdigest()}\n")
    made = convert(
        input=f"{bucket.url}/in", output=str(tmp_path / "out"), exclude=f"@{opt_out}",
        beam_options=["--pool=processes"],
    )  # fmt: skip
    ledger = made.dataset.ledger
    assert (ledger["written"], ledger["filtered"], ledger["quarantined"]) == (7, 1, 0)
    assert ledger["reasons"]["filtered"] == {"excluded": 1}


def as_csv(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def test_all_ways_to_name_objects_give_the_same_images(
    bucket: Bucket, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "STRETCH", 100)
    bucket.put_tree(tree, "set/")
    rows = [(path, path.partition("/")[0]) for path in tree_members(tree)]
    header = ("path", "label")
    columns = {name: list(column) for name, column in zip(header, zip(*rows))}
    table = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), table, row_group_size=5)
    absolute = [(f"{bucket.url}/set/{path}", label) for path, label in rows]
    bucket.put("set/rows.csv", as_csv([header, *rows]))
    bucket.put("set/absolute.csv", as_csv([header, *absolute]))
    bucket.put("set/automl.csv", as_csv([("TRAIN", *row) for row in absolute]))
    bucket.put("set/rows.parquet", table.getvalue())
    bucket.put("lists/a.csv", as_csv([header, *((f"../set/{path}", label) for path, label in rows)]))
    bucket.put("many/1.csv", as_csv([header, *rows[:5]]))
    bucket.put("many/2.csv", as_csv([header, *rows[5:]]))
    (tmp_path / "local.csv").write_bytes(as_csv([header, *rows]))
    root = f"{bucket.url}/set"
    expected = {path: (f"{root}/{path}", (label,)) for path, label in rows}
    for path, image_root in (
        (f"{root}/rows.csv", ""),
        (f"{root}/absolute.csv", ""),
        (f"{root}/automl.csv", ""),
        (f"{root}/rows.parquet", ""),
        (f"{bucket.url}/lists/a.csv", root),
        (f"{bucket.url}/many/", root),
        (str(tmp_path / "local.csv"), root),
    ):
        refs = listed(path, "classification", image_root=image_root).refs.values()
        assert {ref.key: (ref.uri, ref.labels) for ref in refs if ref.is_candidate} == expected, path


def test_tasks_of_label_studio_may_name_objects_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "sets/photos/")
    tasks = export(photos)
    for item, photo in zip(tasks, photos):
        item["data"]["image"] = f"{bucket.url}/sets/photos/{photo.name}"
    path = save(tmp_path / "alone" / "tasks.json", tasks)
    refs = listed(path).refs
    assert refs.keys() == {f"sets/photos/{photo.name}" for photo in photos}
    assert all(ref.is_candidate and ref.size > 0 for ref in refs.values())
    bucket.delete(f"sets/photos/{photos[1].name}")
    assert listed(path).refs[f"sets/photos/{photos[1].name}"].reason == "BAD_ANNOTATION"


@pytest.mark.parametrize("kind", ["coco", "panoptic", "open_images"])
def test_an_image_and_its_mask_have_the_states_of_their_objects(
    bucket: Bucket, tmp_path: Path, kind: str
) -> None:
    FORMATS[kind].put(tmp_path / "in")
    bucket.put_tree(tmp_path / "in", "in/")
    found = listed(f"{bucket.url}/in", FORMATS[kind].layout)
    (ref,) = (ref for ref in found.refs.values() if ref.key.endswith("house.jpg"))
    state = storage.stat(ref.uri)
    assert state is not None and ref.version and (ref.size, ref.version) == (state.size, state.version)
    if kind == "panoptic":
        annotations = found.annotations_of("eagle.jpg")
        state = storage.stat(annotations.panoptic_mask)
        assert state is not None
        assert (annotations.mask_size, annotations.mask_version) == (state.size, state.version)


@pytest.mark.parametrize("most", [10_000, 3])
def test_a_folder_is_listed_unless_it_has_far_more_files(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(file_states, "MIN_LISTED", most)
    monkeypatch.setattr(file_states, "LISTED_FOR_EACH", 1)
    names = ["a.jpg", "b/\u00e4 c.jpg", "b/d.jpg", "e", "f"]
    bucket.put_files({name: b"x" * number for number, name in enumerate(names)}, "in/")
    bucket.put("other.jpg", b"other")
    drawn = []
    list_objects = storage.list_objects

    def counted(folder: str) -> Iterator[storage.StoredObject]:
        for item in list_objects(folder):
            drawn.append(item)
            yield item

    monkeypatch.setattr(storage, "list_objects", counted)
    root = f"{bucket.url}/in"
    uris = [*(f"{root}/{name}" for name in names[:3]), f"{root}/gone.jpg", f"{bucket.url}/other.jpg"]
    refs = [ImageRef(uri, uri) for uri in uris] + [ImageRef("k", f"{root}/a.jpg").filtered("dotfile")]
    found = list(with_states(refs, FileStates(root, 3)))
    assert [ref.key for ref in found] == [ref.key for ref in refs]
    assert [ref.size for ref in found] == [0, 1, 2, -1, 5, -1]
    assert [ref.reason for ref in found] == ["", "", "", "BAD_ANNOTATION", "", "dotfile"]
    for ref in (*found[:3], found[4]):
        assert (ref.uri, ref.size, ref.version, ref.crc32c) == storage.state_of(ref.uri)[:4]
    assert len(drawn) == min(len(names), most + 1)


def test_a_name_that_no_object_can_have_is_that_of_a_missing_image(
    bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    document = coco_of(put_photos(tmp_path / "in" / "val2017"))
    document["images"][0]["file_name"] = too_long = "x" * 1030
    save(tmp_path / "in" / "instances_val2017.json", document)
    bucket.put_tree(tmp_path / "in", "in/")
    with proxy.watch(lambda request: Fault("status", 400) if len(request.name) > 1024 else None):
        refs = listed(f"{bucket.url}/in").refs
    assert len(refs) == len(document["images"])
    assert [key for key, ref in refs.items() if ref.reason == "BAD_ANNOTATION"] == [f"val2017/{too_long}"]


SETTINGS = ConvertSettings(input=("in",), output="out", layout="segmentation")


def test_a_mask_that_changed_since_its_listing_stops_the_job(bucket: Bucket) -> None:
    bucket.put("mask.png", b"first")
    uri = f"{bucket.url}/mask.png"
    found = storage.stat(uri)
    assert found is not None
    annotations = Annotations(semantic_mask=uri, mask_size=found.size, mask_version=found.version)
    ref = ImageRef("a.jpg", "a.jpg", annotations=annotations.encode())
    assert read_mask(ref, SETTINGS) == b"first"
    bucket.put("mask.png", b"other")
    with pytest.raises(EngineError, match="changed"):
        read_mask(ref, SETTINGS)


def test_a_missing_mask_is_a_fault_of_its_image(bucket: Bucket) -> None:
    annotations = Annotations(semantic_mask=f"{bucket.url}/none.png")
    with pytest.raises(ImageFault, match=r"its mask none\.png: no such object"):
        read_mask(ImageRef("a.jpg", "a.jpg", annotations=annotations.encode()), SETTINGS)


_FOLDERS = st.sampled_from(["train", "Test", "cat", "dog a", ".hidden", "", "caf\u00e9", "a\nb", "."])
_FILES = st.sampled_from(["1.jpg", "2.PNG", "x", ".dot.jpg", "1.json", "cat"])
_NAMES = st.tuples(st.lists(_FOLDERS, max_size=3), _FILES).map(lambda path: "/".join([*path[0], path[1]]))
_DATA = st.sampled_from([b"", b"text", b"\xff\xd8\xff\xe0"])
_count = itertools.count()


def in_parts_and_whole(path: str, name: str, **given: str) -> list[Counter[str] | str]:
    """Returns what an input contains, or the refusal, in parts and as a whole."""
    item, results = Input(path, "in/", name), list[Counter[str] | str]()
    source = source_by_name(name)
    for one_worker in (False, True):
        context = Context(ConvertSettings(input=(path,), **given), Spool("unused"), one_worker=one_worker)
        try:
            parts = list(source.parts(item, context))
            results.append(
                Counter(repr(found) for part in parts for found in source.list_part(part, context))
            )
        except UsageError as error:
            results.append(error.message)
    return results


@given(
    st.dictionaries(_NAMES, _DATA, max_size=8),
    st.sampled_from(["auto", "classes", "splits", "ignore", "file names"]),
)
@example(
    {"train/cat/1.jpg": b"a", "train/2.jpg": b"a", "Test/dog a/1.jpg": b"", "x": b"", "3.jpg": b""}, "auto"
)
@example(
    {"/1.jpg": b"a", "//2.jpg": b"", "cat//3.jpg": b"", "train//4.jpg": b"", "train/5.jpg": b""}, "splits"
)
@example({"/1.jpg": b"a", "train/cat/2.jpg": b"a", "test/cat/3.jpg": b"a"}, "auto")
@example({"cat/1.jpg": b"a", "cat/1.json": b"{}", "train/2.jpg": b"", "train/2.json": b"{}"}, "classes")
@example(
    {"/1.jpg": b"a", "//2.jpg": b"", "cat//3.jpg": b"", "train/cat/4.jpg": b"", "5.jpg": b""}, "file names"
)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_of_a_bucket_are_the_whole(bucket: Bucket, files: dict[str, bytes], meaning: str) -> None:
    """The meaning is that of folders, or the class is in the file names."""
    root = f"{next(_count)}/in"
    bucket.put_files(files, f"{root}/")
    in_names = meaning == "file names"
    given = {"label_regex": r"(?P<label>\d).*"} if in_names else {"folders": meaning}
    source = "file_names" if in_names else "class_folders"
    parts, whole = in_parts_and_whole(f"{bucket.url}/{root}", source, **given)
    assert parts == whole
    assert not in_names if isinstance(whole, str) else set(whole.values()) <= {1}


@pytest.mark.parametrize(("paths", "given", "parts"), [
    (["a/b/1.jpg", "c/2.jpg", "3.jpg", ".d/4.jpg"], {}, [("", False), ".d/", "a/", "c/"]),
    (
        ["train/a/1.jpg", "train/b/c/2.jpg", "val/a/3.jpg", "docs/x/4.txt"], {},
        [("", False), "docs/", ("train/", False), "train/a/", "train/b/", ("val/", False), "val/a/"],
    ),
    (["a/1.jpg", "a/1.json", "b/2.jpg", "b/2.json"], {}, [""]),
    (["train/a/1.jpg", "c/2.jpg", "3.jpg"], {"label_regex": "(?P<label>.*)"}, [("", False), "c/", "train/"]),
])  # fmt: skip
def test_each_class_folder_is_a_part(
    bucket: Bucket, paths: list[str], given: dict[str, str], parts: list[Any]
) -> None:
    """Metadata files beside images need the whole folder, and the class in a file name only its top."""
    root = f"{next(_count)}/in"
    bucket.put_files(dict.fromkeys(paths, b""), f"{root}/")
    place = f"{bucket.url}/{root}"
    context = Context(ConvertSettings(input=(place,), **given), Spool("unused"))
    source = source_by_name("file_names" if given else "class_folders")
    found = [part.detail[1] for part in source.parts(Input(place, ""), context)]
    assert found == [FolderPart(*part) if isinstance(part, tuple) else FolderPart(part) for part in parts]


#: Paths -> a part of the refusal; empty if the paths have one meaning.
TREES = {
    "splits": (("Train/cat/1.jpg", "Train/x.jpg", "val/dog/2.jpg", "docs/a/LICENSE", "docs/b.txt"), ""),
    "classes": (("cat/1.jpg", "dog/a/2.jpg", "test/x.txt"), ""),
    "mixed": (("train/cat/1.jpg", "unlabelled/a/2.jpg"), "and unlabelled, which holds images too, is not"),
    "flat": (("train/1.jpg", "test/2.jpg"), "the images lie directly in train and test"),
    "shards": (("00000/1.jpg", "00001/2.jpg", "more/x.txt"), "named like shards"),
}


@pytest.mark.parametrize("tree", TREES)
def test_folders_mean_the_same_as_on_a_disk(bucket: Bucket, tmp_path: Path, tree: str) -> None:
    paths, says = TREES[tree]
    contents = {path: b"\xff\xd8\xff\xe0" if path.endswith(".jpg") else b"text" for path in paths}
    bucket.put_tree(put_files(tmp_path / "in", contents), "in/")
    for folders in ("auto", "splits", "classes", "ignore"):
        found: list[Any] = []
        for place in (str(tmp_path / "in"), f"{bucket.url}/in"):
            try:
                refs = by_key(list_refs(place, "class_folders", folders=folders))
                found.append({key: (ref.split, ref.label, ref.reason) for key, ref in refs.items()})
            except UsageError as error:
                found.append(error.message.replace(place, "IN"))
        assert found[0] == found[1]
        if folders == "auto":
            assert says in found[0] if says else isinstance(found[0], dict)
