"""Keys and places of the images in manifests, for every way to write a path."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.file_states import ImageRoot, local_state

PATHS = st.lists(st.sampled_from([*"a./: é\udcff~\\\n", "%FF", "%2e", "file://", "gs://"]), max_size=16).map(
    "".join
)


@pytest.mark.parametrize(
    ("root", "path", "key", "uri"),
    [
        ("/data", "cats/1.jpg", "cats/1.jpg", "/data/cats/1.jpg"),
        ("/data", "./cats//1.jpg", "cats/1.jpg", "/data/./cats//1.jpg"),
        ("/data", "dogs/../cats/1.jpg", "cats/1.jpg", "/data/dogs/../cats/1.jpg"),
        ("/data", "/data/cats/1.jpg", "cats/1.jpg", "/data/cats/1.jpg"),
        ("/data", "../data/cats/1.jpg", "cats/1.jpg", "/data/../data/cats/1.jpg"),
        ("/data/", "../images/1.jpg", "images/1.jpg", "/data/../images/1.jpg"),
        ("/data", "/other/1.jpg", "other/1.jpg", "/other/1.jpg"),
        ("/data", "/database/1.jpg", "database/1.jpg", "/database/1.jpg"),
        ("/data", "100%.jpg", "100%25.jpg", "/data/100%.jpg"),
        ("/data", "\udcff.jpg", "%FF.jpg", "/data/\udcff.jpg"),
        ("/data", "e\u0301.jpg", "é.jpg", "/data/e\u0301.jpg"),
        ("/data", "file:///data/1.jpg", "1.jpg", "/data/1.jpg"),
        ("/data", "file://localhost/other/1.jpg", "other/1.jpg", "/other/1.jpg"),
        ("/data", "file:///other/my%20cat.jpg", "other/my cat.jpg", "/other/my cat.jpg"),
        ("/data", "file:///data/%FF%C3%A9.jpg", "%FFé.jpg", "/data/\udcffé.jpg"),
        ("/data", "gs://b/cats/1.jpg", "b/cats/1.jpg", "gs://b/cats/1.jpg"),
        ("/data", "GS://b/cats/1.jpg", "b/cats/1.jpg", "gs://b/cats/1.jpg"),
        ("/data", "s3://b/../x//1.jpg", "x/1.jpg", "s3://b/../x//1.jpg"),
        ("/data", " gs://b/1.jpg ", "b/1.jpg", "gs://b/1.jpg"),
        ("", "cats/1.jpg", "cats/1.jpg", "cats/1.jpg"),
        ("", "../1.jpg", "1.jpg", "../1.jpg"),
        ("/", "cats/1.jpg", "cats/1.jpg", "/cats/1.jpg"),
        ("gs://b/set", "cats/1.jpg", "cats/1.jpg", "gs://b/set/cats/1.jpg"),
        ("gs://b/set/", "./cats//1.jpg", "cats/1.jpg", "gs://b/set/cats/1.jpg"),
        ("gs://b/set", "../images/1.jpg", "images/1.jpg", "gs://b/images/1.jpg"),
        ("gs://b", "cats/1.jpg", "cats/1.jpg", "gs://b/cats/1.jpg"),
        ("gs://b/set", "gs://b/set/cats/1.jpg", "cats/1.jpg", "gs://b/set/cats/1.jpg"),
        ("gs://b/set", "gs://b/settings/1.jpg", "b/settings/1.jpg", "gs://b/settings/1.jpg"),
        ("gs://b/set", "/tmp/1.jpg", "tmp/1.jpg", "/tmp/1.jpg"),
        ("gs://b/set", " 1.jpg", "1.jpg", "gs://b/set/1.jpg"),
    ],
)
def test_paths_give_key_and_place(root: str, path: str, key: str, uri: str) -> None:
    assert ImageRoot(root).find(path) == (key, uri)


@pytest.mark.parametrize(
    ("root", "path", "message"),
    [
        ("/data", "", "names no image"),
        ("/data", " \t", "names no image"),
        ("/data", "a\0b.jpg", "NUL"),
        ("/data", "..", "folder"),
        ("/data", "cats/", "folder"),
        ("/data", "/", "folder"),
        ("/data", "http://example.org/1.jpg", "no storage for http://"),
        ("/data", "hdfs://h/1.jpg", "no storage for hdfs://"),
        ("/data", "gs://bucket", "names no object"),
        ("/data", "gs://bucket/cats/", "names no object"),
        ("/data", "gs:///1.jpg", "names no object"),
        ("/data", "gs://b/..", "names no file"),
        ("/data", "gs://b b/1.jpg", "cannot be that of an object"),
        ("/data", "gs://b/1\r.jpg", "cannot be that of an object"),
        ("/data", "gs://b/" + "é" * 600, "cannot be that of an object"),
        ("gs://b/set", "x" * 1030, "cannot be that of an object"),
        ("/data", "a b://c/1.jpg", "no storage"),
        ("/data", "gs://b/\udcff.jpg", "not UTF-8"),
        ("/data", "\ud800.jpg", "not UTF-8"),
        ("gs://b/set", "\udcff.jpg", "not UTF-8"),
        ("gs://b/set", "../../1.jpg", "out of the bucket"),
    ],
)
def test_wrong_paths_are_refused(root: str, path: str, message: str) -> None:
    with pytest.raises(AnnotationFault, match=message):
        ImageRoot(root).find(path)


@given(PATHS, st.sampled_from(("", "/", "/data/é", "data", "gs://b", "gs://b/x")))
@example("/..a", "")
@example("file://..", "/data/é")
@example("file://", "/")
def test_any_path_gives_a_valid_key(path: str, root: str) -> None:
    try:
        key, uri = ImageRoot(root).find(path)
    except AnnotationFault:
        return
    assert key and uri and "\udcff" not in key and key == unicodedata.normalize("NFC", key)
    assert not {"", ".", ".."} & set(key.split("/"))
    key.encode()
    os.fsencode(uri)


def test_a_file_has_one_key_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = ("x/1.jpg", "./x/1.jpg", "x/../x/1.jpg", f"{tmp_path}/x/1.jpg", f"file://{tmp_path}/x/1.jpg")
    for root in ("", ".", str(tmp_path)):
        assert {ImageRoot(root).find(path)[0] for path in written} == {"x/1.jpg"}
    assert {ImageRoot("x").find(path)[0] for path in ("1.jpg", "../x/1.jpg", f"{tmp_path}/x/1.jpg")} == {
        "1.jpg"
    }


def test_white_space_matters_if_the_file_name_has_it(tmp_path: Path) -> None:
    (tmp_path / " 1.jpg").touch()
    (tmp_path / "2.jpg").touch()
    root = ImageRoot(str(tmp_path))
    assert root.find(" 1.jpg") == (" 1.jpg", f"{tmp_path}/ 1.jpg")
    assert root.find(" 2.jpg ") == ("2.jpg", f"{tmp_path}/2.jpg")


def test_the_state_of_a_file_is_its_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "e\u0301.jpg"
    file.write_bytes(b"123")
    uri, size, version = local_state(str(file))
    assert (uri, size, version) == (str(file), 3, str(file.stat().st_mtime_ns))
    assert local_state(str(tmp_path / "é.jpg")) == (uri, size, version)  # as macOS and Linux write the name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.jpg", "no such file or directory"),
        ("cats\\no.jpg", "write / instead"),
        (".", "is a folder"),
        ("fifo", "not a regular file"),
        ("file/x.jpg", "not a directory"),
        ("x" * 300, "name too long"),
        ("loop", "symbolic links"),
    ],
)
def test_a_missing_file_is_reported_with_a_reason(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AnnotationFault, match=message) as fault:
        local_state(str(tmp_path / name))
    assert fault.value.reason == "UNREADABLE"
