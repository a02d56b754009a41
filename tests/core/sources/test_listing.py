"""What is listed: every file and link once, first looks, digests, and nothing outside with `--confine`."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from helpers.embedded import png, table_of, write_parquet
from helpers.hostile import make_tree
from helpers.listing import found_in, listed, look_at, put_photos
from helpers.trees import put_files
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.sources import class_folders, input_probe
from shardwright.core.sources.class_folders import folder_parts
from shardwright.core.sources.file_states import TouchedFiles, name_hash
from shardwright.core.sources.folder_tree import FolderTree
from shardwright.core.sources.listing import Confinement, ListingDigest, add_up, list_part
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.source import Context, Input, InputPart, source_by_name
from shardwright.core.sources.spool import Spool
from shardwright.pipelines import cli
from shardwright.pipelines.cli import main
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.transforms.plan import ListSources

FOLDERS = st.sampled_from([b"train", b"Test", b"cat", b"dog a", b".hidden", b"00000", b"caf\xe9", b"a\nb"])
FILES = st.sampled_from([b"1.jpg", b"2.PNG", b"x", b"notes.txt", b".dot.jpg", b"\xff.jpg", b"1.json", b"cat"])
PATHS = st.tuples(st.lists(FOLDERS, max_size=3), FILES).map(lambda path: b"/".join([*path[0], path[1]]))
TARGETS = st.sampled_from(
    [b".", b"..", b"../..", b"nowhere", b"cat", b"../cat", b"../train", b"1.jpg", b"train"]
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "folders": st.sampled_from(["classes", "splits", "ignore"]),
        "label_depth": st.sampled_from(["2", "all", "last"]),
        "layout": st.just("images"),
        "label_regex": st.sampled_from(
            [r"(?P<label>\d).*", r"(?P<split>[^/]+)/(?P<label>[^/]+)/.*", "(?P<label>.*)(?P<group>.)"]
        ),
    },
)


def entries_of(path: str, source: str = "class_folders", **given: Any) -> Counter[str] | str:
    """Returns what an input contains; the message if it is refused."""
    chosen = ConvertSettings(input=(path,), **given)
    context = Context(chosen, Spool("unused"), make_rules(chosen, (), 0))
    try:
        (part,) = source_by_name(source).parts(Input(path, "in/", source), context)
        return Counter(repr(found) for found in list_part(part, context))
    except ShardwrightError as error:
        return f"{type(error).__name__}: {error}"


def make_files(root: bytes, files: dict[bytes, bytes], links: dict[bytes, bytes]) -> None:
    """Creates files and links as far as their names are free."""
    for path, target in [*files.items(), *links.items()]:
        try:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            if path in files:
                with open(os.path.join(root, path), "xb") as file:
                    file.write(target)
            else:
                os.symlink(target, os.path.join(root, path))
        except OSError:  # the name is taken, or a link leads nowhere or to itself
            continue


@given(
    st.dictionaries(PATHS, st.sampled_from([b"", b"text", b"\xff\xd8\xff\xe0"]), max_size=12),
    st.dictionaries(PATHS, TARGETS, max_size=4),
    SETTINGS,
)
@example({b"train/cat/1.jpg": b"a", b"train/2.jpg": b"a", b"Test/dog a/1.jpg": b"", b"x": b""}, {}, {})
@example({b"cat/1.jpg": b"a", b"cat/1.json": b"{}"}, {b"train/cat": b"..", b"up/x": b"../cat"}, {})
@settings(deadline=None)
def test_every_file_of_a_folder_is_listed_once(
    files: dict[bytes, bytes], links: dict[bytes, bytes], given_settings: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = os.path.join(os.fsencode(place), b"a/b/in")  # links lead two folders up at most
        os.makedirs(root)
        make_files(root, files, links)
        source = "file_names" if "label_regex" in given_settings else "class_folders"
        found = entries_of(os.fsdecode(root), source, **given_settings)
        assert isinstance(found, str) or set(found.values()) <= {1}


@given(
    st.builds(
        FolderTree,
        st.dictionaries(st.text(), st.text()),
        *[st.booleans()] * 2,
        st.just(()),
        *[st.booleans()] * 2,
    )
)
def test_the_meaning_of_folders_travels_with_a_part(tree: FolderTree) -> None:
    """Also the order of the splits, because files outside of them belong to the first."""
    context = Context(ConvertSettings(), Spool("unused"), one_worker=True)
    coder = beam.coders.registry.get_coder(InputPart)
    (part,) = folder_parts(Input("in", ""), tree, context)
    found = coder.decode(coder.encode(part)).detail[0]
    assert found == tree and list(found.splits) == list(tree.splits)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(os.fsencode(tmp_path), {b"a/1.jpg": b"", b"b/2.jpg": b"", b"train/c/3.txt": b""}, {})
    real = os.scandir
    for refused in ("b", "train", "train/c"):

        def scandir(path: bytes, refused: bytes = os.fsencode(tmp_path / refused)) -> Any:
            if path == refused:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return real(path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", scandir)
            message = entries_of(str(tmp_path), folders="splits")
        assert f"Cannot list {tmp_path}/{refused}: permission denied; make it readable" in str(message)


@pytest.mark.parametrize("several", [True, False])
def test_the_meaning_of_the_folders_is_found_once(tmp_path: Path, several: bool) -> None:
    source, spool = tmp_path / "in", tmp_path / "spool"
    spool.mkdir()
    paths = [b"train/a/1.jpg", b"train/caf\xe9/2.jpg", b"val/a\nb/3.jpg", b"4.jpg", b"val/\xff.jpg"]
    make_files(os.fsencode(source), dict.fromkeys(paths, b""), {b"train/up": b".."})
    expected = entries_of(str(source))
    chosen = ConvertSettings(input=(str(source),))
    flags = ["--runner=FnApiRunner"]
    if several:
        flags += ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    find_tree = mock.patch.object(class_folders, "find_tree", wraps=class_folders.find_tree)
    with find_tree as found, beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        refs, *_ = pipeline | "ListSources" >> ListSources(
            [Input(str(source), "in/", "class_folders")],
            Context(chosen, Spool(str(spool)), make_rules(chosen, (), 0)),
        )
        assert_that(refs | beam.Map(repr), equal_to([*expected]))
        labels = " ".join(pipeline.applied_labels)
    assert ("SpreadOut" in labels) == several
    assert [call.args[0].path for call in found.call_args_list] == [str(source)]


Capture = pytest.CaptureFixture[str]
#: The files in every tree of these tests, besides links.
IMAGES = ["ant/000.jpg", "ant/002.png", "bee/001.png", "bee/003.jpg"]


def circle(*paths: Path) -> None:
    """Creates links, each to the next one, and the last to the first."""
    for path, following in zip(paths, (*paths[1:], paths[0])):
        path.symlink_to(following)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with four images in two classes."""
    make_tree(tmp_path / "in", images=4)
    return tmp_path / "in"


def test_circular_links_are_faults_or_filtered_and_end(source: Path, tmp_path: Path) -> None:
    """Nothing shows what links without the name of an image are."""
    expected = dict.fromkeys(IMAGES, "written")
    for place, length in itertools.product((".", "ant"), (1, 2, 3)):
        for suffix, outcome in ((".png", "UNREADABLE"), ("", "not_an_image")):
            links = [source / place / f"link{length}_{i}{suffix}" for i in range(length)]
            circle(*links)
            expected |= {str(link.relative_to(source)): outcome for link in links}
    for place, target in (("up", "."), ("ant/up", ".."), ("ant/here", "."), ("bee/out", "../..")):
        (source / place).symlink_to(target)
        expected[place] = "symlink_loop"
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "circle").symlink_to("..")
    (source / "bee" / "elsewhere").symlink_to("../../elsewhere/deep")
    expected["bee/elsewhere/circle/deep"] = "symlink_loop"
    entries = listed(source, "classification").entries()
    assert {key: entry.reason or entry.outcome for key, entry in entries.items()} == expected


@pytest.mark.parametrize("target", ["", "nowhere"])
@pytest.mark.parametrize(
    "name", ["a.tar", "a.zip", "data.yaml", "metadata.csv", "labels.json", "a.tfrecord", "x.npy", "train"]
)
def test_circular_links_named_like_annotation_files_are_ignored(source: Path, name: str, target: str) -> None:
    (source / name).symlink_to(target or name)
    found = listed(source, "classification")
    assert found.refs.keys() - found.reasons().keys() == {*IMAGES}
    assert found.refs.keys() - {*IMAGES} <= {name}


@pytest.mark.parametrize("name", ["in", "in.tar", "in.csv", "data.yaml"])
def test_a_circular_link_as_input_is_refused(tmp_path: Path, name: str, capsys: Capture) -> None:
    circle(tmp_path / name, tmp_path / "other")
    for command in (["plan"], ["convert", "--output", str(tmp_path / "out")]):
        assert main([*command, "--input", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err.strip()
        assert name in error and "Traceback" not in error and error.count("\n") == 0, error
    assert not (tmp_path / "out").exists()


def test_lists_of_images_are_found_among_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_probe, "IMAGES", 2)
    monkeypatch.setattr(input_probe, "OTHERS", 3)
    lists = ["a.json", "classes.txt", "instances.json", "labels.csv", "notes", "z.xml"]
    others = [f"{number:02}.{extension}" for number in range(40) for extension in ("jpg", "PNG", "md")]
    for name in lists + others:
        (tmp_path / name).touch()
    files = look_at(tmp_path).files
    assert list(files) == sorted(files) and {*lists} <= {*files}
    kept = Counter(name.rpartition(".")[2] for name in files if name not in lists)
    assert kept == {"jpg": 2, "PNG": 2, "md": 3}


def test_folders_inside_are_listed_once(tmp_path: Path) -> None:
    """Each kind of source looks into `train`, which may hold a million images."""
    put_files(tmp_path, {"train/1.jpg": ""})
    with mock.patch.object(os, "scandir", wraps=os.scandir) as scan:
        probe = look_at(tmp_path)
        assert [probe.inside("train").files for _ in range(3)] == [("1.jpg",)] * 3
        assert probe.images_below == 1
    assert scan.mock_calls.count(mock.call(str(tmp_path / "train"))) == 1


def test_the_number_of_a_name_depends_on_its_bytes_and_uses_64_bits() -> None:
    for name, data in (("", b""), ("cat/1.jpg", b"cat/1.jpg"), ("caf\udce9", b"caf\xe9")):
        assert name_hash(name) == int(hashlib.blake2b(data, digest_size=8).hexdigest(), 16)


def test_paths_can_be_joined_to_an_empty_path_the_root_and_a_bucket() -> None:
    assert storage.join("", "x") == "x" and storage.join("", "x", "y") == "x/y"
    assert storage.join("/", "x") == "/x" and storage.join("a/", "x") == "a/x"
    assert storage.join("gs://bucket", "x") == "gs://bucket/x"


_FILES = 60


def _cvat(name: str) -> str:
    return (
        f'<annotations><version>1.1</version><image id="0" name="{name}" width="9" height="9"/></annotations>'
    )


def _coco(name: str) -> str:
    image = {"id": 1, "file_name": name, "width": 9, "height": 9}
    return json.dumps({"images": [image], "annotations": [], "categories": [{"id": 1, "name": "a"}]})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("{}.xml", _cvat),
        ("{}.json", _coco),
        ("{}.json", '[{{"image": "{}", "annotations": []}}]'.format),
        ("{}.csv", "filename,class,xmin,ymin,xmax,ymax\n{},a,1,1,2,2\n".format),
        ("{}.csv", "ImageID,LabelName,XMin,XMax,YMin,YMax\n{},a,0.1,0.2,0.1,0.2\n".format),
        ("train{}/_classes.csv", "filename,a,b\n{},0,1\n".format),
        ("{}.txt", "{} 0\n".format),
    ],
    ids=["cvat", "coco", "create_ml", "box_table", "open_images", "class_columns", "lists"],
)
def test_all_files_are_read(tmp_path: Path, file: str, text: Callable[[str], str]) -> None:
    kind = "classification" if file.endswith(("_classes.csv", ".txt")) else "detection"
    (photo,) = put_photos(tmp_path / "photos", ("eagle",))
    for number in range(_FILES):
        path = tmp_path / "in" / file.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "photos" / photo.name, path.parent / f"{number}.jpg")
        path.write_text(text(str(number) if "ImageID" in text("") else f"{number}.jpg"))
    found = listed(tmp_path / "in", layout=kind)
    assert len(found.refs) == _FILES and not found.reasons()


_TEXT = st.text(max_size=3) | st.sampled_from(["\udcff", "a\0b", "'", '"', "\\"])
_REFS = st.builds(
    ImageRef, _TEXT, _TEXT, label=_TEXT, size=st.integers(-1, 3), version=_TEXT, outcome=st.just(""),
    place=_TEXT, fold=st.integers(-1, 1),
)  # fmt: skip
_ITEMS = st.lists(_REFS | st.builds(ClassId, _TEXT, st.integers(0, 3), _TEXT), max_size=6)


def digest_of(items: list[ImageRef | ClassId], spool: str = "/v/1/_work/spool") -> ListingDigest:
    digest = ListingDigest()
    for item in items:
        digest.add(item, spool)
    return digest


@given(items=_ITEMS, data=st.data())
def test_neither_the_order_nor_the_parts_matter(items: list[ImageRef | ClassId], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(items))
    cut = data.draw(st.integers(0, len(items)))
    assert add_up([digest_of(mixed[:cut]), digest_of(mixed[cut:])]) == digest_of(items)


@given(one=_ITEMS, other=_ITEMS)
def test_other_references_have_another_digest(
    one: list[ImageRef | ClassId], other: list[ImageRef | ClassId]
) -> None:
    same = sorted(map(repr, one)) == sorted(map(repr, other))
    assert (digest_of(one).text == digest_of(other).text) == same


def test_images_without_a_known_state_are_counted() -> None:
    known = ImageRef("a", "a", size=1, version="1")
    unknown = [known._replace(size=-1), known._replace(version=""), known._replace(has_unmarked_mask=True)]
    decided = [ref.filtered("dotfile") for ref in unknown]
    assert digest_of([known, *unknown, *decided]).untrusted == len(unknown)


def test_the_place_of_spool_files_does_not_count() -> None:
    refs = [ImageRef("a", "t.tar.gz", place=f"/v/{run}/_work/spool/abc:1:2") for run in (1, 2)]
    first, second = (digest_of([ref], f"/v/{run}/_work/spool") for run, ref in enumerate(refs, 1))
    assert first == second != digest_of([refs[0]], "/v/2/_work/spool")


def test_a_new_link_to_an_old_file_counts_as_touched(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.touch()
    files = TouchedFiles(old.stat().st_ctime)
    while not link.is_symlink() or link.lstat().st_ctime == files.since:  # the clock of the disk is coarse
        link.unlink(missing_ok=True)
        link.symlink_to(old)
    assert [files.has(ImageRef("a", str(path))) for path in (old, link)] == [False, True]


def _listed(path: Path, **values: Any) -> list[tuple[str, str]]:
    """Returns the file name and the reason for leaving it out, for every image that a conversion lists."""
    _, found = found_in(path, values, spool=path.parent.parent)
    return [(os.path.basename(one.uri), one.reason) for one in found if isinstance(one, ImageRef)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An input folder with images inside and outside, and links in both directions."""
    pictures = ("in/inner.png", "in/images/deep.png", "out/secret.png", "in-beside/near.png")
    put_files(tmp_path, dict.fromkeys(pictures, png(1)))
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
