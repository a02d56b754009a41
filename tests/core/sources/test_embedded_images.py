"""Images inside Parquet and Arrow files are found byte for byte, however they are stored."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from helpers.embedded import HUGGING_FACE, png, read, refs_of, table_of, write_arrow, write_parquet
from helpers.examples import examples
from helpers.listing import refusal
from helpers.trees import put_files
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from shardwright.core import storage
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.containers import state_of
from shardwright.core.sources.tables import parquet as parquet_rows
from shardwright.core.sources.tables.files import Table
from shardwright.core.sources.tables.rows import Rows
from shardwright.core.storage.ranges import RangeReader
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, UsageError
from shardwright.schemas.image_ref import ImageRef

_IMAGES = [png(number, (9 + number, 7)) for number in range(6)]
_LABELS = list("abcabc")
_WAYS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "data_page_size": st.sampled_from([1, 100, 1 << 20]),
        "write_page_checksum": st.booleans(),
        "row_group_size": st.integers(1, 9),
    }
)
_MADE = {number: png(number) for number in range(5)}


def _bytes(refs: list[ImageRef]) -> list[bytes | None]:
    return [read(ref) if ref.is_candidate else None for ref in refs]


def _write(folder: Path, kind: str, **how: Any) -> Path:
    """Writes six rows as an Arrow file, an Arrow stream, or Parquet."""
    six = table_of(_IMAGES, label=_LABELS)
    if kind in ("file", "stream"):
        return write_arrow(folder / "x.arrow", six, kind == "file")
    return write_parquet(folder / "x.parquet", six, **how)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=12), _WAYS, st.booleans())
def test_parquet_gives_the_bytes_that_were_written(
    numbers: list[int | None], ways: dict[str, Any], nested: bool
) -> None:
    images = [None if number is None else _MADE[number] for number in (*numbers, 0)]
    table = table_of(images, label=["a"] * len(images))
    if not nested:
        table = table.set_column(0, "image", pyarrow.array(images, pyarrow.binary()))
    with tempfile.TemporaryDirectory() as folder:
        path = write_parquet(Path(folder, "rows.parquet"), table, write_batch_size=2, **ways)
        assert parquet.read_table(path).equals(table)
        refs, _ = refs_of(path, Path(folder, "spool"), source="parquet")
        assert _bytes(refs) == images


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["struct", "binary", "large_binary", "binary_view", "dictionary"])
def test_arrow_gives_the_bytes_that_were_written(
    tmp_path: Path, is_file: bool, compression: str | None, kind: str
) -> None:
    images = [_IMAGES[0], None, *_IMAGES[1:], b""]
    table = table_of(images, label=pyarrow.array([*_LABELS, "a", "b"]).dictionary_encode())
    if kind == "dictionary":
        table = table.set_column(0, "image", pyarrow.array(images, pyarrow.binary()).dictionary_encode())
    elif kind != "struct":
        table = table.set_column(0, "image", pyarrow.array(images, getattr(pyarrow, kind)()))
    path = write_arrow(tmp_path / "rows.arrow", table, is_file, compression=compression)
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [ref.label for ref in refs] == ["a", "", *"cabcab"] and _bytes(refs) == images


def test_rows_have_keys_states_and_messages(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", table_of(_IMAGES, label=_LABELS), row_group_size=2)
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [ref.key for ref in refs] == [f"x.parquet!{number:06d}" for number in range(6)]
    assert [ref.uri for ref in refs] == [str(path)] * 6
    assert [ref.location for ref in refs] == [f"{path}!{number:06d}" for number in range(6)]
    assert len({ref.version for ref in refs}) == 6 and all(ref.has_known_state for ref in refs)
    assert refs[3].message == "x.parquet, row 3"
    changed = [*_IMAGES[:3], png(200), *_IMAGES[4:]]
    write_parquet(path, table_of(changed, label=_LABELS), compression="none")
    again, _ = refs_of(path, tmp_path / "spool")
    same = [a.fingerprint == b.fingerprint for a, b in zip(refs, again, strict=True)]
    assert same == [number != 3 for number in range(6)]


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_a_file_that_changed_since_it_was_listed_is_not_read(tmp_path: Path, kind: str) -> None:
    path = _write(tmp_path, kind)
    form, sizes = "Parquet" if kind == "parquet" else "Arrow", methodcaller("sizes")
    state = storage.state_of(str(path))
    assert sum(count for count, _ in parquet_rows.read_apart(form, state, sizes)) == 6
    os.utime(path, ns=(1, 1))
    with pytest.raises(EngineError, match=f"{path} changed while the job was reading its input"):
        parquet_rows.read_apart(form, state, sizes)


def test_rows_without_bytes_are_read_by_their_path(tmp_path: Path) -> None:
    put_files(tmp_path, {"photos/one.png": png(9)})
    images = [png(1), None, None, None, b"no image"]
    paths = ["photos/one.png", "photos/one.png", "gone.png", None, "x.png"]
    path = write_parquet(tmp_path / "x.parquet", table_of(images, paths, label=list("aaaaa")))
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [(ref.key, ref.reason) for ref in refs] == [
        ("x.parquet!000000", ""), ("photos/one.png", ""), ("x.parquet:3", "BAD_ROW"),
        ("x.parquet!000004", ""), ("gone.png", "UNREADABLE"),
    ]  # fmt: skip
    assert _bytes(refs)[:2] == [png(1), png(9)]
    assert refs[2].message == "x.parquet, row 3: it names no image"


@pytest.mark.parametrize("kind", ["large_string", "string_view", "binary", "dictionary"])
@pytest.mark.parametrize("write", [write_parquet, write_arrow])
def test_paths_beside_missing_bytes_may_have_any_type_of_text(
    tmp_path: Path, write: Callable[[Path, pyarrow.Table], Path], kind: str
) -> None:
    name = "cafe\u0301.png"
    (tmp_path / name).write_bytes(png(9))
    paths = pyarrow.array([name.encode() if kind == "binary" else name, None])
    paths = paths.dictionary_encode() if kind == "dictionary" else paths.cast(getattr(pyarrow, kind)())
    images = pyarrow.StructArray.from_arrays([pyarrow.array([None, png(1)]), paths], ["bytes", "path"])
    table = pyarrow.table({"image": images, "label": ["a", "a"]})
    refs, _ = refs_of(write(tmp_path / "x.arrow", table), tmp_path / "spool", source="parquet")
    assert _bytes(refs) == [png(9), png(1)]


@pytest.mark.parametrize("name", ["saved", "hub"])
def test_datasets_of_hugging_face_are_read(tmp_path: Path, name: str) -> None:
    refs, ids = refs_of(HUGGING_FACE / name, tmp_path / "spool")
    assert ids == {"cat": 0, "dog": 1}
    train = "train/data-00000-of-00001.arrow" if name == "saved" else "data/train-00000-of-00001.parquet"
    assert {ref.key: (ref.split, ref.label) for ref in refs} == {
        f"{train.replace('train', split)}!{number:06d}": (split, "dog" if number % 2 else "cat")
        for split, count in (("test", 2), ("train", 4)) for number in range(count)
    }  # fmt: skip
    assert all(read(ref).startswith(b"\x89PNG") for ref in refs)


def test_class_numbers_beyond_the_names_are_bad_rows(tmp_path: Path) -> None:
    schema = parquet.read_schema(HUGGING_FACE / "hub" / "data" / "train-00000-of-00001.parquet")
    table = table_of(_IMAGES[:4], label=pyarrow.array([0, 2, -1, None]))
    described = schema.metadata[b"huggingface"].replace(b'"animal"', b'"label"')
    path = write_parquet(tmp_path / "x.parquet", table.replace_schema_metadata({b"huggingface": described}))
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [(ref.label, ref.reason) for ref in refs] == [("cat", ""), ("", "BAD_ROW"), ("", ""), ("", "")]
    assert refs[1].message == "x.parquet, row 1: its class 2 is not one of 0 to 1"
    assert refs[2].message == "x.parquet, row 2 has no class"


def test_the_column_of_images_can_be_named(tmp_path: Path) -> None:
    table = pyarrow.table({"small": _IMAGES[:2], "large": _IMAGES[2:4], "thing": ["a", "b"]})
    path = write_parquet(tmp_path / "x.parquet", table)
    unclear = refusal(path, label_column="thing", source="parquet")
    assert "several of its columns hold images (small, large)" in unclear
    refs, _ = refs_of(path, tmp_path / "spool", label_column="thing", image_column="large")
    assert _bytes(refs) == _IMAGES[2:4]


def test_extra_columns_splits_and_caches(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "data"
    folder.mkdir(parents=True)
    for name in ("train-00000-of-00002-0123456789abcdef", "extra-00000-of-00001", "cache-77"):
        table = table_of(_IMAGES[:2], label=["a", "b"], price=[1.5, 2.5])
        write_parquet(folder / f"{name}.parquet", table)
    put_files(tmp_path / "in", {"README.md": "about", "notes.txt": "about", ".gitattributes": ""})
    refs, _ = refs_of(tmp_path / "in", tmp_path / "spool", extra_columns="price:float")
    filtered = {ref.key: ref.reason for ref in refs if not ref.is_candidate}
    assert filtered == {".gitattributes": "dotfile", "notes.txt": "not_an_image"}
    candidates = [ref for ref in refs if ref.is_candidate]
    assert [ref.split for ref in candidates] == ["extra", "extra", "train", "train"]
    assert "1.5" in candidates[0].extra and "2.5" in candidates[1].extra
    again, _ = refs_of(tmp_path / "in", tmp_path / "spool", splits="train=0.5,test=0.5")
    assert {ref.split for ref in again} == {""}


def test_images_inside_an_object_with_a_backslash_in_its_name_are_not_searched() -> None:
    file = storage.StoredObject("gs://b/a\\b.parquet", 9, "1")
    table = Table(file, "Parquet", ("image", "label", "", "", ""), has_images=True)
    image = parquet_rows.EmbeddedImage(ByteRange("spool", 0, 4), 4, "digest")
    (ref,) = Rows(table, "", ConvertSettings()).refs([(0, {"image": image, "label": "a"})])
    assert ref.is_candidate and ref.label == "a"


def test_faults_of_columns_are_told_for_the_images(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", table_of(_IMAGES, kind=_LABELS))
    assert "none of its columns (image, kind) has a usual name for classes" in refusal(path)
    without = f"--layout detection: {path} is read as parquet, but it has no column objects"
    assert without in refusal(path, "detection")
    refs, _ = refs_of(path, tmp_path / "spool", "images")
    assert _bytes(refs) == _IMAGES
    refs, _ = refs_of(path, tmp_path / "spool", unlabelled="keep")
    assert {ref.label for ref in refs} == {""}


def test_paths_alone_are_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(png(1))
    path = write_parquet(tmp_path / "x.parquet", pyarrow.table({"image": ["1.png"], "label": ["a"]}))
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [ref.key for ref in refs] == ["1.png"]
    assert "--source manifest" in refusal(path, source="parquet")
    write_parquet(path, table_of(_IMAGES, label=_LABELS))
    assert "holds no paths but struct" in refusal(path, source="manifest")


def test_a_saved_dataset_with_missing_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    missing = "names the file 'data-00000-of-00001.arrow', which is missing"
    assert missing in refusal(tmp_path, source="parquet")
    write_arrow(tmp_path / "data-00000-of-00001.arrow", table_of(_IMAGES, label=_LABELS))
    write_arrow(tmp_path / "cache-1.arrow", table_of(_IMAGES, label=_LABELS))
    refs, _ = refs_of(tmp_path, tmp_path / "spool")
    assert len(refs) == 6
    state = '{"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": [{"a": 1}]}'
    (tmp_path / "state.json").write_text(state)
    assert "flatten_indices" in refusal(tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["none", "snappy", "checksum", "dictionary"])
def test_damaged_pages_are_quarantined_and_no_row_is_lost(tmp_path: Path, how: str) -> None:
    compression = "snappy" if how == "snappy" else "none"
    path = write_parquet(
        tmp_path / "x.parquet", table_of(_IMAGES, label=_LABELS), row_group_size=3, compression=compression,
        use_dictionary=how == "dictionary", write_page_checksum=how == "checksum",
    )  # fmt: skip
    column = parquet.read_metadata(path).row_group(1).column(0)
    begin, sound = column.dictionary_page_offset or column.data_page_offset, path.read_bytes()
    for place in range(begin, begin + column.total_compressed_size, 3):
        path.write_bytes(sound[:place] + bytes((sound[place] ^ 0xFF,)) + sound[place + 1 :])
        refs, _ = refs_of(path, tmp_path / f"spool{place}")
        # A level that changes hides a value, so its row has no image any more.
        assert [int(ref.key[-1]) for ref in refs] == list(range(6)) and _bytes(refs[:3]) == _IMAGES[:3]
        if how == "checksum" and place >= begin + 100:
            assert all(data in (None, image) for data, image in zip(_bytes(refs[3:]), _IMAGES[3:]))


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_files_that_end_early_are_refused(tmp_path: Path, kind: str) -> None:
    path = _write(tmp_path, kind)
    data = path.read_bytes()
    # The last has all messages of a stream, without its end.
    for length in (*(len(data) * part // 16 for part in range(16)), len(data) - 8):
        path.write_bytes(data[:length])
        with pytest.raises(UsageError):
            refs_of(path, tmp_path / "spool", source="parquet")


def test_repeated_values_of_a_dictionary_are_stored_once(tmp_path: Path) -> None:
    bomb = [png(1, (300, 300))] * 1_100  # more than the rows that are read at once
    path = write_parquet(tmp_path / "x.parquet", table_of(bomb, label=["a"] * 1_100), compression="zstd")
    refs, _ = refs_of(path, tmp_path / "spool")
    assert len(refs) == 1_100 and len({ref.place for ref in refs}) == 1
    files = [*(tmp_path / "spool" / "_work" / "spool").iterdir()]
    assert sum(file.stat().st_size for file in files) == len(bomb[0])
    assert refs_of(path, tmp_path / "spool")[0] == refs  # now the spool file exists


def test_images_that_take_too_much_space_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_rows, "SMALL_BYTES", 250)
    images = [bytes((number,)) * 100 for number in (1, 2, 1, 3, 4)]
    table = table_of([*images, None, images[0][:50], images[3]])
    path = str(write_parquet(tmp_path / "x.parquet", table))
    rows = parquet_rows.RowGroups(RangeReader(*state_of(path)[:3]))
    copied = parquet_rows.copy_images(rows, "image", 0, 1, 1, str(tmp_path / "images"))
    places = [item.place[:3] for item in copied if isinstance(item, parquet_rows.EmbeddedImage)]
    assert places == [("", 0, 100), ("", 100, 100), ("", 0, 100), ("", 200, 50)]
    faults = [item.reason for item in copied if isinstance(item, AnnotationFault)]
    assert faults == ["TOO_LARGE"] * 3 and len(copied) == 8
    assert (tmp_path / "images").stat().st_size == 250


_KINDS = st.sampled_from(["none", "snappy", "zstd", "file", "stream"])
_CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=examples(240), deadline=None)
@given(_KINDS, _CHANGES)
@example("file", [(309, 0)])  # a footer without batches
def test_a_damaged_file_is_refused_or_has_all_rows(kind: str, changes: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = _write(Path(folder), kind, compression=kind, row_group_size=3)
        data = bytearray(path.read_bytes())
        for place, value in changes:
            data[-1 - place % len(data)] = value
        path.write_bytes(data)
        try:
            refs, _ = refs_of(path, Path(folder, "spool"), source="parquet")
        except UsageError:
            return
        assert len(refs) == 6
        for ref in refs:
            if ref.is_candidate:
                with contextlib.suppress(ImageFault):
                    read(ref)
