"""Folders that are listed in parts give exactly what they give as a whole."""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.core.sources import class_folders
from shardwright.core.sources.class_folders import SOURCE, FolderPart, decode_part, split_folder
from shardwright.core.sources.folder_tree import FolderTree
from shardwright.core.sources.input_probe import InputProbe
from shardwright.core.sources.label_rules import make_label_rules
from shardwright.core.sources.listing import list_part
from shardwright.core.sources.source import Context, Input, source_by_name
from shardwright.core.sources.spool import Spool
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ShardwrightError
from shardwright.schemas.image_ref import ImageRef
from shardwright.transforms.sources import ListSources

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
    },
)


def in_parts_and_whole(path: str, source: str = "class_folders", **given: Any) -> list[Counter[str] | str]:
    """Returns what an input contains, listed in parts and as a whole; the message if it is refused."""
    item, results = Input(path, "in/", source), list[Counter[str] | str]()
    for one_worker in (False, True):
        chosen = ConvertSettings(input=(path,), **given)
        context, rules = Context(chosen, Spool("unused"), one_worker), make_label_rules(chosen, (), 0)
        try:
            parts = list(source_by_name(source).split(item, context))
            assert len({part[:2] + part[5:] for part in parts}) == len(parts)
            results.append(
                Counter(repr(found) for part in parts for found in list_part(part, context, rules))
            )
        except ShardwrightError as error:
            results.append(f"{type(error).__name__}: {error}")
    return results


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
def test_parts_of_a_folder_are_the_whole(
    files: dict[bytes, bytes], links: dict[bytes, bytes], given_settings: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = os.path.join(os.fsencode(place), b"a/b/in")  # links lead two folders up at most
        os.makedirs(root)
        make_files(root, files, links)
        parts, whole = in_parts_and_whole(os.fsdecode(root), **given_settings)
        assert parts == whole
        assert isinstance(whole, str) or set(whole.values()) <= {1}


@given(
    st.dictionaries(PATHS, st.sampled_from([b"", b"text", b"\xff\xd8\xff\xe0"]), max_size=12),
    st.dictionaries(PATHS, TARGETS, max_size=4),
    st.sampled_from(
        [r"(?P<label>\d).*", r"(?P<split>[^/]+)/(?P<label>[^/]+)/.*", "(?P<label>.*)(?P<group>.)"]
    ),
)
@settings(deadline=None)
def test_parts_of_a_folder_of_file_names_are_the_whole(
    files: dict[bytes, bytes], links: dict[bytes, bytes], label_regex: str
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = os.path.join(os.fsencode(place), b"a/b/in")
        os.makedirs(root)
        make_files(root, files, links)
        parts, whole = in_parts_and_whole(os.fsdecode(root), "file_names", label_regex=label_regex)
        assert parts == whole and isinstance(whole, Counter) and set(whole.values()) <= {1}


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
    tmp_path: Path, paths: list[str], given: dict[str, str], parts: list[Any]
) -> None:
    """Metadata files beside images need the whole folder, and the class in a file name only its top."""
    make_files(os.fsencode(tmp_path), dict.fromkeys(map(os.fsencode, paths), b""), {})
    context = Context(ConvertSettings(input=(str(tmp_path),), **given), Spool("unused"))
    source = source_by_name("file_names" if given else "class_folders")
    found = [decode_part(part.detail)[0] for part in source.split(Input(str(tmp_path), ""), context)]
    assert found == [FolderPart(*part) if isinstance(part, tuple) else FolderPart(part) for part in parts]


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
    (part,) = split_folder(Input("in", ""), tree, context)
    found = decode_part(part.detail)[1]
    assert {**vars(found), "empty": ()} == vars(tree) and list(found.splits) == list(tree.splits)


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
            parts, whole = in_parts_and_whole(str(tmp_path), folders="splits")
        assert parts == whole
        assert f"Cannot list {tmp_path}/{refused}: permission denied; make it readable" in str(whole)


def test_a_part_that_disappears_is_named(tmp_path: Path) -> None:
    make_files(os.fsencode(tmp_path), {b"a/1.jpg": b"", b"b/2.jpg": b""}, {})
    chosen = ConvertSettings(input=(str(tmp_path),))
    context = Context(chosen, Spool("unused"))
    parts = list(SOURCE.split(Input(str(tmp_path), "", "class_folders"), context))
    (tmp_path / "b" / "2.jpg").unlink()
    (tmp_path / "b").rmdir()
    with pytest.raises(EngineError, match=f"Cannot list {tmp_path}/b: no such file or directory; make it"):
        list(list_part(parts[-1], context, make_label_rules(chosen, (), 0)))


def write_line(ref: ImageRef, path: str) -> None:
    """Appends a reference to a file."""
    with open(path, "a") as file:
        file.write(f"{ref!r}\n")


@pytest.mark.parametrize("several", [True, False])
def test_only_several_workers_list_parts(
    tmp_path: Path, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The meaning of the folders is found once, however many parts there are."""
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
            Context(chosen, Spool(str(spool))),
            make_label_rules(chosen, (), 0),
        )
        _ = refs | beam.Map(write_line, str(listing))
        labels = " ".join(pipeline.applied_labels)
    assert ("SpreadOut" in labels) == several
    assert calls == [str(source)]
    monkeypatch.undo()
    assert [Counter(listing.read_text().splitlines())] * 2 == in_parts_and_whole(str(source))
