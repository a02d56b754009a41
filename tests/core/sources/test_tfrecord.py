"""TFRecord files as input: our own datasets, foreign files, and files that are damaged or of another kind."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.embedded import refs_of
from helpers.hostile import document
from helpers.listing import found_in, listed, look_at, refusal
from helpers.mutants import mutants
from helpers.repository import PHOTOS, copy_photos
from helpers.tfrecords import (
    JPEGS,
    PNG,
    SUFFIX,
    classified,
    converted,
    example,
    object_record,
    offsets_of,
    read,
    records_in,
    tf,
    write,
)
from helpers.trees import put_files

from shardwright.core.images.read import read_image
from shardwright.core.sources.tfrecord import SOURCE
from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import ImageRef, decode_refs, encode_refs


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of ours with three splits that keeps the bytes of every second example picture."""
    root = tmp_path_factory.mktemp("own")
    settings = {"splits": "train=0.6,validation=0.2,test=0.2", "shards": "train=3,validation=1,test=2"}
    return converted(copy_photos(root / "photos", step=2), root / "dataset", **settings)


@pytest.fixture(scope="module")
def own_records(own: Path) -> dict[str, dict[str, Any]]:
    """Its records by key, as TensorFlow reads them."""
    return read(own)


class TestOwnDatasets:
    def test_a_single_shard_can_be_the_input(
        self, own: Path, own_records: dict[str, dict[str, Any]], tmp_path: Path
    ) -> None:
        refs, ids = refs_of(own / "train-00001-of-00003.tfrecord", tmp_path / "spool")
        assert 0 < len(refs) < len(own_records) / 2
        for ref in refs:
            assert [read_image(ref, 1 << 30)] == own_records[ref.key]["image/encoded"]
        assert {ref.split for ref in refs} == {"train"}
        assert sorted(ids, key=ids.__getitem__) == document(own)["labels"]

    def test_other_files_in_the_directory_are_not_read(
        self, own: Path, own_records: dict[str, dict[str, Any]], tmp_path: Path
    ) -> None:
        copy = shutil.copytree(own, tmp_path / "copy")
        write(copy / "train-00003-of-00004.tfrecord", [{"image": JPEGS[0], "label": 1}])
        refs, _ = refs_of(copy, tmp_path / "spool")
        assert {ref.key for ref in refs} == own_records.keys()

    @pytest.mark.parametrize(
        ("file", "text", "part"),
        [
            ("test-00001-of-00002.tfrecord", None, "lacks test-00001-of-00002"),
            ("dataset.json", None, "did not finish"),
            ("dataset.json", "{", "is not JSON"),
            ("dataset.json", '{"format_version": 1, "splits": {}}', "is damaged"),
            ("dataset.json", '{"format_version": 99, "splits": {}}', "format_version 99"),
            ("dataset.json", '"../a.tfrecord"', "a name that no shard has"),
            ("dataset.json", '"/etc/passwd"', "a name that no shard has"),
            ("dataset.json", "7", "is damaged"),
        ],
    )
    def test_a_dataset_that_lacks_or_damages_a_file_is_refused(
        self, file: str, text: str | None, part: str, own: Path, tmp_path: Path
    ) -> None:
        """A text that is no object becomes the name of a shard."""
        copy = shutil.copytree(own, tmp_path / "copy")
        if text is None:
            (copy / file).unlink()
        elif text.startswith("{"):
            (copy / file).write_text(text)
        else:
            changed = document(copy)
            changed["splits"]["train"]["shards"][0]["file"] = json.loads(text)
            (copy / file).write_text(json.dumps(changed))
        assert part in refusal(copy)

    def test_every_lost_record_is_accounted_for(self, own: Path, tmp_path: Path) -> None:
        copy = shutil.copytree(own, tmp_path / "copy")
        shard = copy / "train-00001-of-00003.tfrecord"
        offsets = offsets_of(shard.read_bytes())
        shard.write_bytes(shard.read_bytes()[: offsets[3]])
        lost = [ref for ref in refs_of(copy, tmp_path / "spool")[0] if not ref.is_candidate]
        assert len(lost) == len(offsets) - 3
        assert {ref.reason for ref in lost} == {"TRUNCATED"}
        assert f"the file ends after 3 of {len(offsets)} records" in lost[0].message


def test_file_names_give_splits_unless_others_are_given(tmp_path: Path) -> None:
    root = tmp_path / "in"
    names = [
        "train-00000-of-00002",
        "train-00001-of-00002",
        "mnist-test.tfrecord-00000-of-00001",
        "val/a.tfrec",
    ]
    for i, name in enumerate(names):
        write(root / name, [{"image": JPEGS[i], "label": 0}])
    put_files(root, {"dataset_info.json": "{}", "notes.md": "notes", ".hidden.tfrecord": ""})
    refs, _ = refs_of(root, tmp_path / "spool")
    assert {ref.key: ref.split for ref in refs if ref.is_candidate} == {
        f"{name}!000000": split for name, split in zip(names, ("train", "train", "test", "val"), strict=True)
    }
    assert sorted(ref.reason for ref in refs) == ["", "", "", "", "dotfile", "unsupported_kind"]
    refs, _ = refs_of(root, tmp_path / "spool", splits="a=0.5,b=0.5")
    assert {ref.split for ref in refs} == {""}


def test_the_split_in_a_record_is_used(tmp_path: Path) -> None:
    records = [{"image": JPEGS[i], "label": 0, "split": ["TRAIN", "VALIDATION"][i % 2]} for i in range(4)]
    refs, _ = refs_of(write(tmp_path / "x.tfrecord", records), tmp_path / "spool")
    assert [ref.split for ref in refs] == ["train", "validation"] * 2


def test_duplicate_file_names_do_not_end_the_job(tmp_path: Path) -> None:
    for file in ("a", "b"):
        records = [
            {"image/encoded": JPEGS[i], "image/class/label": 0, "image/filename": name}
            for i, name in enumerate(["1.jpg", "1.jpg", "", "x/2%.jpg"])
        ]
        write(tmp_path / "in" / f"{file}.tfrecord", records)
    refs, _ = refs_of(tmp_path / "in", tmp_path / "spool")
    assert [ref.key for ref in refs] == [
        f"{file}.tfrecord!{name}" for file in "ab" for name in ("1.jpg", "000001", "000002", "x/2%25.jpg")
    ]


def test_extra_columns_of_every_type_are_stored(tmp_path: Path) -> None:
    records = [
        {"image": JPEGS[i], "label": 0, "price": 1.5, "n": -3, "tags": ["a", "b"], "blob": b"\xff\0"}
        for i in range(2)
    ]
    file = write(tmp_path / "a.tfrecord", [*records, {"image": JPEGS[2], "label": 0, "price": 1.5, "n": 2}])
    columns = "price:float,n:int,tags:string[],blob:bytes"
    found = records_in(file, "classification", extra_columns=columns)
    assert len(found) == 2
    for record in found.values():
        assert (record["price"], record["n"]) == ([1.5], [-3])
        assert (record["tags"], record["blob"]) == ([b"a", b"b"], [b"\xff\0"])
    refs, _ = refs_of(file, tmp_path / "spool", extra_columns=columns)
    assert refs[2].reason == "BAD_ROW" and "blob is empty" in refs[2].message


def test_class_folders_are_not_detected_as_tfrecords(tmp_path: Path) -> None:
    def accepts(path: Path) -> bool:
        return SOURCE.accepts(look_at(path), ConvertSettings())

    assert not accepts(PHOTOS)
    shutil.copytree(PHOTOS, tmp_path / "photos")
    write(tmp_path / "photos" / "cats" / "a.tfrecord", [{"image": JPEGS[0], "label": 1}])
    assert not accepts(tmp_path / "photos")
    write(tmp_path / "deep" / "mnist" / "3.0.1" / "a.tfrecord-00000-of-00001", [])
    assert accepts(tmp_path / "deep")
    write(tmp_path / "plain" / "part-0", [{"image": JPEGS[0], "label": 1}], "zlib")
    assert accepts(tmp_path / "plain" / "part-0")
    assert len(refs_of(tmp_path / "plain" / "part-0", tmp_path / "spool")[0]) == 1
    write(tmp_path / "gz" / "train-00000-of-00001", [{"image": JPEGS[0], "label": 1}], "gzip")
    assert accepts(tmp_path / "gz")
    (tmp_path / "text").write_text("a,b\n")
    assert not accepts(tmp_path / "text")


class TestDamage:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return write(tmp_path / "a.tfrecord", [{"image": JPEGS[i], "label": i} for i in range(6)])

    def _listed(self, path: Path, tmp_path: Path) -> tuple[list[int], list[tuple[str, str, str]]]:
        """Returns the numbers of the kept pictures, and (key, reason, message) of the lost records."""
        refs, _ = refs_of(path, tmp_path / "spool")
        kept = [JPEGS.index(read_image(ref, 1 << 30)) for ref in refs if ref.is_candidate]
        return kept, [(ref.key, ref.reason, ref.message) for ref in refs if not ref.is_candidate]

    def test_a_flipped_bit_and_a_truncation_lose_one_record_each(self, file: Path, tmp_path: Path) -> None:
        data = bytearray(file.read_bytes())
        offsets = offsets_of(bytes(data))
        data[offsets[1] + 3] ^= 1  # of its length
        data[offsets[3] + 500] ^= 4
        file.write_bytes(data[:-9])
        kept, lost = self._listed(file, tmp_path)
        assert kept == [0, 2, 4]
        reasons = {1: "CORRUPT", 3: "CORRUPT", 5: "TRUNCATED"}
        assert {key: reason for key, reason, _ in lost} == {
            f"a.tfrecord!{number:06d}": reason for number, reason in reasons.items()
        }
        message = lost[1][2]
        assert f"bytes {offsets[3]:,} to {offsets[4]:,}" in message and "checksum" in message

    @pytest.mark.parametrize("compression", ["gzip", "zlib"])
    def test_a_truncated_compressed_file_keeps_its_beginning(self, compression: str, tmp_path: Path) -> None:
        records = [{"image": JPEGS[i], "label": i} for i in range(6)]
        packed = write(tmp_path / f"b.tfrecord{SUFFIX[compression]}", records, compression)
        packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
        kept, ((_, reason, message),) = self._listed(packed, tmp_path)
        assert kept == list(range(len(kept))) and 0 < len(kept) < 6
        assert reason == "TRUNCATED" and "compressed stream ends early" in message

    def test_a_stream_truncated_between_records_is_detected(self, file: Path, tmp_path: Path) -> None:
        data = file.read_bytes()
        packer = gzip.zlib.compressobj(6, gzip.zlib.DEFLATED, 31)
        cut = packer.compress(data[: offsets_of(data)[3]]) + packer.flush(gzip.zlib.Z_SYNC_FLUSH)
        (tmp_path / "c.tfrecord.gz").write_bytes(cut)
        kept, ((key, _, _),) = self._listed(tmp_path / "c.tfrecord.gz", tmp_path)
        assert kept == [0, 1, 2] and key == "c.tfrecord.gz!000003"

    def test_incomplete_and_wrong_records_are_faults(self, tmp_path: Path) -> None:
        sound = {"image": JPEGS[0], "label": 0}
        cases: list[tuple[Any, str, str]] = [
            (b"\x0a\xff", "CORRUPT", "not a tf.train.Example"),
            ({"label": 1, "note": "x"}, "BAD_ROW", "features: label, note"),
            ({"image": b"", "label": 1}, "EMPTY_FILE", "is empty"),
            ({"image": [JPEGS[0], JPEGS[1]], "label": 1}, "BAD_ROW", "several values"),
            ({"image": b"plain text", "label": 1}, "BAD_ROW", "--pixel_shape"),
            ({"image": JPEGS[0]}, "UNKNOWN_LABEL", "it has no class"),
            ({"image": JPEGS[0], "label": b"\xff"}, "BAD_ANNOTATION", "not UTF-8"),
            ({"image": JPEGS[0], "label": 1.5}, "BAD_ANNOTATION", "not a class id"),
            ({"image": JPEGS[0], "label": float("nan")}, "BAD_ANNOTATION", "not a class id"),
            ({"image": JPEGS[0], "label": "x" * 5000}, "BAD_ANNOTATION", "not a class name"),
            ({"image": JPEGS[0], "label": [1, 2]}, "BAD_ANNOTATION", "--label_separator"),
            ({"image": JPEGS[0][:300], "label": 1}, "TRUNCATED", ""),
            ({"image": b"8BPS\0\1" + bytes(200), "label": 1}, "UNSUPPORTED_FORMAT", ""),
            ({"image": b"x" * 30, "height": 5, "width": 5, "depth": 3, "label": 1}, "CORRUPT", "5 x 5 x 3"),
        ]
        file = write(tmp_path / "a.tfrecord", [sound, *(case[0] for case in cases)])
        entries = listed(file, "classification", tmp_path).entries()
        assert len(entries) == len(cases) + 1
        for number, (_, reason, part) in enumerate(cases, 1):
            entry = entries[f"a.tfrecord!{number:06d}"]
            assert entry.reason == reason and part in entry.message, (number, entry)
        unlabelled = refs_of(file, tmp_path / "spool")[0][6]
        assert not unlabelled.label and unlabelled.message.endswith(": it has no class")

    def test_a_file_that_changed_stops_the_job(self, file: Path, tmp_path: Path) -> None:
        refs, _ = refs_of(file, tmp_path / "spool")
        assert read_image(refs[0], 1 << 30) == JPEGS[0]
        with file.open("ab") as more:
            more.write(b"x")
        with pytest.raises(EngineError, match="changed"):
            read_image(refs[0], 1 << 30)


def _sequence() -> bytes:
    message = tf.train.SequenceExample()
    message.feature_lists.feature_list["frames"].feature.add().bytes_list.value.append(JPEGS[0])
    data: bytes = message.SerializeToString()
    return data


_SOUND = {"image": JPEGS[0], "label": 1}


class TestRefusals:
    @pytest.mark.parametrize(
        ("record", "settings", "says"),
        [
            (
                {"embedding": [0.5, 0.25], "label": 1, "image_uri": "gs://x/y"},
                {},
                "holds no image, which convert needs (features: embedding, image_uri, label)",
            ),
            (_sequence, {}, "SequenceExample"),
            (b"\xff\xff\xff", {}, "are not tf.train.Example"),
            (_SOUND, {"extra_columns": "price:float"}, "no such feature"),
            (
                {"image": b"\0\0\xc6B" * 1440, "label": 1},
                {"pixel_shape": "20x24x3"},
                "are not 20 x 24 x 3 pixels, and no image file",
            ),
            ({**classified(0), "image/filename": "a"}, {"layout": "detection"}, "choose --layout images."),
        ],
    )
    def test_unsuitable_records_are_refused(
        self, record: Any, settings: dict[str, str], says: str, tmp_path: Path
    ) -> None:
        file = write(tmp_path / "a.tfrecord", [record() if callable(record) else record])
        message = refusal(file, **settings)
        assert says in message and message.count("features:") <= 1 and "--unlabelled" not in message

    def test_a_broken_link_is_reported(self, tmp_path: Path) -> None:
        write(tmp_path / "in" / "a.tfrecord", [{"image": JPEGS[0], "label": 1}])
        (tmp_path / "in" / "b.tfrecord").symlink_to("nowhere")
        assert "b.tfrecord is a link to nowhere" in refusal(tmp_path / "in")

    def test_other_files_are_not_tfrecords(self, tmp_path: Path) -> None:
        (tmp_path / "a.tfrecord").write_bytes(b"not one" * 100)
        assert "is not a TFRecord file" in refusal(tmp_path / "a.tfrecord")
        (tmp_path / "in").mkdir()
        assert "has no TFRecord files" in refusal(tmp_path / "in", source="tfrecord")


@pytest.mark.parametrize("layout", ["classification", "detection", "segmentation", "panoptic"])
def test_any_record_gives_one_reference(layout: str, tmp_path: Path) -> None:
    tensor = tf.io.serialize_tensor(tf.zeros((4, 4, 3), tf.uint8)).numpy()
    sources = [
        example({**object_record(0), "image/encoded": PNG, "image/object/mask": [PNG, b""]}),
        example({"image": PNG, "label": 1, "split": "TRAIN", "price": 1.5}),
        example({"image": bytes(48), "height": 4, "width": 4, "depth": 3, "label": "x", "shape": [4, 4, 3]}),
        example({"image": tensor, "objects/bbox": [0.5]}),
        example(
            {
                "image/encoded": PNG,
                "image/segmentation/class/encoded": PNG,
                "image/panoptic/category_mask": PNG,
                "image/panoptic/instance_mask": PNG,
                "price": 1.5,
            }
        ),
    ]
    records = [record for source in sources for record in (source, *mutants(source, 300))]
    file = write(tmp_path / "a.tfrecord", records)
    columns = "price:float,split:string[]"
    settings = {"layout": layout, "extra_columns": columns, "unlabelled": "keep"}
    _, found = found_in(file, settings, "tfrecord", tmp_path)
    refs = [item for item in found if isinstance(item, ImageRef)]
    assert len(refs) == len({ref.key for ref in refs}) == len(records)
    assert list(decode_refs(encode_refs(refs))) == refs
    assert any(ref.is_candidate for ref in refs) and any(not ref.is_candidate for ref in refs)
    for ref in refs:
        if ref.is_candidate and decode_place(ref.place).method == "stored":
            assert ref.size == len(read_image(ref, 1 << 20))
