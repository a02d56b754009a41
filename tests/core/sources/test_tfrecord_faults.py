"""TFRecord files that are damaged, hostile, or of another kind."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import ledger_entries
from helpers.tfrecords import (
    JPEGS,
    PNG,
    SUFFIX,
    converted,
    example,
    listed,
    object_record,
    offsets_of,
    read,
    refused_sentence,
    tf,
    write,
)

from shardwright.core.images.read import read_image
from shardwright.pipelines.convert import convert
from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.errors import DataRefused, EngineError
from shardwright.schemas.image_ref import decode_refs, encode_refs


class TestDamage:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return write(tmp_path / "a.tfrecord", [{"image": JPEGS[i], "label": i} for i in range(6)])

    def _kept(self, made: Path) -> list[int]:
        return sorted(JPEGS.index(record["image/encoded"][0]) for record in read(made).values())

    def _lost(self, made: Path) -> list[tuple[str, str, str]]:
        return [
            (entry["key"], entry["reason"], entry["message"])
            for entry in ledger_entries(made)
            if entry["outcome"] == "quarantined"
        ]

    def test_a_flipped_bit_loses_one_record(self, file: Path, tmp_path: Path) -> None:
        data = bytearray(file.read_bytes())
        offsets = offsets_of(bytes(data))
        data[offsets[2] + 500] ^= 4
        file.write_bytes(data)
        with pytest.raises(DataRefused):
            convert(input=str(file), output=str(tmp_path / "refused"))
        made = converted(file, tmp_path / "out", max_bad_fraction=0.5)
        assert self._kept(made) == [0, 1, 3, 4, 5]
        ((key, reason, message),) = self._lost(made)
        assert (key, reason) == ("a.tfrecord!000002", "CORRUPT")
        assert f"bytes {offsets[2]:,} to {offsets[3]:,}" in message and "checksum" in message

    def test_a_flipped_length_and_a_truncation_are_reported(self, file: Path, tmp_path: Path) -> None:
        data = bytearray(file.read_bytes())
        offsets = offsets_of(bytes(data))
        data[offsets[1] + 3] ^= 1
        file.write_bytes(data[:-9])
        made = converted(file, tmp_path / "out", max_bad_fraction=0.5)
        assert self._kept(made) == [0, 2, 3, 4]
        assert [(key, reason) for key, reason, _ in self._lost(made)] == [
            ("a.tfrecord!000001", "CORRUPT"),
            ("a.tfrecord!000005", "TRUNCATED"),
        ]

    @pytest.mark.parametrize("compression", ["gzip", "zlib"])
    def test_a_truncated_compressed_file_keeps_its_beginning(
        self, compression: str, file: Path, tmp_path: Path
    ) -> None:
        records = [{"image": JPEGS[i], "label": i} for i in range(6)]
        packed = write(tmp_path / f"b.tfrecord{SUFFIX[compression]}", records, compression)
        packed.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
        made = converted(packed, tmp_path / "out", max_bad_fraction=0.9)
        kept = self._kept(made)
        assert kept == list(range(len(kept))) and 0 < len(kept) < 6
        ((_, reason, message),) = self._lost(made)
        assert reason == "TRUNCATED" and "compressed stream ends early" in message

    def test_a_stream_truncated_between_records_is_detected(self, file: Path, tmp_path: Path) -> None:
        data = file.read_bytes()
        packer = gzip.zlib.compressobj(6, gzip.zlib.DEFLATED, 31)
        cut = packer.compress(data[: offsets_of(data)[3]]) + packer.flush(gzip.zlib.Z_SYNC_FLUSH)
        (tmp_path / "c.tfrecord.gz").write_bytes(cut)
        made = converted(tmp_path / "c.tfrecord.gz", tmp_path / "out", max_bad_fraction=0.9)
        assert self._kept(made) == [0, 1, 2]
        assert [key for key, _, _ in self._lost(made)] == ["c.tfrecord.gz!000003"]

    def test_incomplete_and_wrong_records_are_faults(self, tmp_path: Path) -> None:
        sound = {"image": JPEGS[0], "label": 0}
        cases: list[tuple[Any, str, str]] = [
            (b"\x0a\xff", "CORRUPT", "not a tf.train.Example"),
            ({"label": 1, "note": "x"}, "BAD_ROW", "features: label, note"),
            ({"image": b"", "label": 1}, "EMPTY_FILE", "is empty"),
            ({"image": [JPEGS[0], JPEGS[1]], "label": 1}, "BAD_ROW", "several values"),
            ({"image": b"plain text", "label": 1}, "BAD_ROW", "--pixel_shape"),
            ({"image": JPEGS[0]}, "UNKNOWN_LABEL", "has no class"),
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
        made = converted(file, tmp_path / "out", max_bad_fraction=1)
        lost = {key: (reason, message) for key, reason, message in self._lost(made)}
        assert len(lost) == len(cases)
        for number, (_, reason, part) in enumerate(cases, 1):
            found = lost[f"a.tfrecord!{number:06d}"]
            assert found[0] == reason and part in found[1], (number, found)

    def test_a_file_that_changed_stops_the_job(self, file: Path, tmp_path: Path) -> None:
        refs = listed(file, tmp_path)
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
        ],
    )
    def test_unsuitable_records_are_refused(
        self, record: Any, settings: dict[str, str], says: str, tmp_path: Path
    ) -> None:
        file = write(tmp_path / "a.tfrecord", [record() if callable(record) else record])
        assert says in refused_sentence(file, tmp_path, **settings)

    def test_a_broken_link_is_reported(self, tmp_path: Path) -> None:
        write(tmp_path / "in" / "a.tfrecord", [{"image": JPEGS[0], "label": 1}])
        (tmp_path / "in" / "b.tfrecord").symlink_to("nowhere")
        assert "b.tfrecord is a link to nowhere" in refused_sentence(tmp_path / "in", tmp_path)

    def test_other_files_are_not_tfrecords(self, tmp_path: Path) -> None:
        (tmp_path / "a.tfrecord").write_bytes(b"not one" * 100)
        assert "is not a TFRecord file" in refused_sentence(tmp_path / "a.tfrecord", tmp_path)
        (tmp_path / "in").mkdir()
        assert "has no TFRecord files" in refused_sentence(tmp_path / "in", tmp_path, source="tfrecord")


@pytest.mark.parametrize("layout", ["classification", "detection", "segmentation", "panoptic"])
def test_any_record_gives_one_reference(layout: str, tmp_path: Path) -> None:
    rng = random.Random(3)
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
    records = []
    for _ in range(1500):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randint(0, 4)):
            place = rng.randrange(len(data))
            if rng.random() < 0.6:
                data[place] = rng.randrange(256)
            elif rng.random() < 0.5:
                del data[place : place + rng.randint(1, 5)]
            else:
                data[place:place] = rng.randbytes(rng.randint(1, 5))
        records.append(bytes(data))
    file = write(tmp_path / "a.tfrecord", records)
    columns = "price:float,split:string[]"
    refs = listed(file, tmp_path, layout=layout, extra_columns=columns, unlabelled="keep")
    assert len(refs) == len({ref.key for ref in refs}) == len(records)
    assert list(decode_refs(encode_refs(refs))) == refs
    assert any(ref.is_candidate for ref in refs) and any(not ref.is_candidate for ref in refs)
    for ref in refs:
        if ref.is_candidate and decode_place(ref.place).method == "stored":
            assert ref.size == len(read_image(ref, 1 << 20))
