"""Folders in a bucket give the same in parts as a whole, also with names that only buckets have."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.packing import by_key, list_refs
from helpers.storage.buckets import Bucket
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardwright.core.sources.class_folders import FolderPart
from shardwright.core.sources.source import Context, Input, source_by_name
from shardwright.core.sources.spool import Spool
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError

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
    for name, data in files.items():
        bucket.put(f"{root}/{name}", data)
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
    for path in paths:
        bucket.put(f"{root}/{path}", b"")
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
    for path in paths:
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(b"\xff\xd8\xff\xe0" if path.endswith(".jpg") else b"text")
    bucket.put_tree(tmp_path / "in", "in/")
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
