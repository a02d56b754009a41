"""Folders on a disk: every file and link is listed once, circles end, and unlistable folders are named."""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.hostile import make_tree
from helpers.listing import listed as listed_with_checks
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.core.sources import class_folders
from shardwright.core.sources.class_folders import folder_parts
from shardwright.core.sources.folder_tree import FolderTree
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.listing import list_part
from shardwright.core.sources.rules import make_rules
from shardwright.core.sources.source import Context, Input, InputPart, source_by_name
from shardwright.core.sources.spool import Spool
from shardwright.pipelines.cli import main
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ShardwrightError
from shardwright.schemas.image_ref import ImageRef
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


def listed(path: str, source: str = "class_folders", **given: Any) -> Counter[str] | str:
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
        found = listed(os.fsdecode(root), source, **given_settings)
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
            message = listed(str(tmp_path), folders="splits")
        assert f"Cannot list {tmp_path}/{refused}: permission denied; make it readable" in str(message)


def write_line(ref: ImageRef, path: str) -> None:
    """Appends a reference to a file."""
    with open(path, "a") as file:
        file.write(f"{ref!r}\n")


@pytest.mark.parametrize("several", [True, False])
def test_the_meaning_of_the_folders_is_found_once(
    tmp_path: Path, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, spool = tmp_path / "in", tmp_path / "spool"
    spool.mkdir()
    paths = [b"train/a/1.jpg", b"train/caf\xe9/2.jpg", b"val/a\nb/3.jpg", b"4.jpg", b"val/\xff.jpg"]
    make_files(os.fsencode(source), dict.fromkeys(paths, b""), {b"train/up": b".."})
    calls, listing = list[str](), tmp_path / "listing"
    real = class_folders.find_tree

    def counted(probe: InputProbe, *rest: Any) -> FolderTree:
        calls.append(probe.path)
        return real(probe, *rest)

    monkeypatch.setattr(class_folders, "find_tree", counted)
    chosen = ConvertSettings(input=(str(source),))
    flags = ["--runner=FnApiRunner"]
    if several:
        flags += ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        refs, *_ = pipeline | "ListSources" >> ListSources(
            [Input(str(source), "in/", "class_folders")],
            Context(chosen, Spool(str(spool)), make_rules(chosen, (), 0)),
        )
        _ = refs | beam.Map(write_line, str(listing))
        labels = " ".join(pipeline.applied_labels)
    assert ("SpreadOut" in labels) == several
    assert calls == [str(source)]
    assert Counter(listing.read_text().splitlines()) == listed(str(source))


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
    entries = listed_with_checks(source, "classification").entries()
    assert {key: entry.reason or entry.outcome for key, entry in entries.items()} == expected


@pytest.mark.parametrize("target", ["", "nowhere"])
@pytest.mark.parametrize(
    "name", ["a.tar", "a.zip", "data.yaml", "metadata.csv", "labels.json", "a.tfrecord", "x.npy", "train"]
)
def test_circular_links_named_like_annotation_files_are_ignored(source: Path, name: str, target: str) -> None:
    (source / name).symlink_to(target or name)
    found = listed_with_checks(source, "classification")
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
