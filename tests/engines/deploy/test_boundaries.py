"""The bytes that cross the stages of a conversion or rebuild: references, but no images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import execution
from helpers.repository import EXAMPLES, copy_photos

from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild

#: The first bytes of JPEG, PNG and WebP files.
MAGIC = re.compile(rb"\xff\xd8\xff[\xe0\xe1\xdb\xee]|\x89PNG\r\n\x1a\n|RIFF....WEBP", re.DOTALL)
PIECE = 32
SOURCES = [path.read_bytes() for path in sorted(EXAMPLES.rglob("*")) if path.is_file()]
#: Some bytes from the middle of each picture.
PIECES = [data[len(data) // 2 :][:PIECE] for data in SOURCES]


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """All data that the in-process runner passes from one stage to the next."""
    found: list[bytes] = []

    def noting(buffer: type, name: str) -> None:
        original = getattr(buffer, name)

        def append(self: Any, data: bytes) -> None:
            found.append(bytes(data))
            original(self, data)

        monkeypatch.setattr(buffer, name, append)

    noting(execution.ListBuffer, "append")
    noting(execution.GroupingBuffer, "append")
    noting(execution.WindowGroupingBuffer, "append")
    yield found


def images_in(crossed: list[bytes]) -> int:
    return sum(bool(MAGIC.search(data)) or any(piece in data for piece in PIECES) for data in crossed)


def test_the_recorder_detects_images_that_cross(crossed: list[bytes]) -> None:
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        _ = pipeline | beam.Create(SOURCES[:3], reshuffle=False) | beam.Reshuffle()
    assert images_in(crossed) >= 1
    assert sum(map(len, crossed)) > sum(map(len, SOURCES[:3]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"resize": 64, "verify": "full"},
        {"dedupe": "exact", "split_by": "(.)", "compression": "gzip"},  # this keeps the original bytes
        {"resize": 32, "image_format": "raw", "verify": "none"},
    ],
    ids=["jpeg", "keep", "raw"],
)
def test_no_image_crosses_from_stage_to_stage(
    settings: dict[str, Any], crossed: list[bytes], tmp_path: Path
) -> None:
    places = {"input": str(EXAMPLES), "output": str(tmp_path / "out"), "splits": "train=0.8,test=0.2"}
    options = ["--runner=FnApiRunner", "--direct_num_workers=1"]
    made = convert(**places, **settings, shards=3, beam_options=options)
    assert sum(sum(counts.values()) for counts in made.dataset.class_counts.values()) == len(SOURCES)
    assert len(crossed) > 10
    assert images_in(crossed) == 0
    # References, the plan, one result per shard, and the lines of ledgers that are compared.
    assert sum(map(len, crossed)) < sum(map(len, SOURCES)) / 15


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["fast", "quality"])
def test_no_image_crosses_in_a_rebuild(verify: str, crossed: list[bytes], tmp_path: Path) -> None:
    source = copy_photos(tmp_path / "in", 6, EXAMPLES)
    images = sum(path.is_file() for path in source.rglob("*"))
    places = {"input": str(source), "output": str(tmp_path / "out"), "splits": "train=0.8,test=0.2"}
    options = ["--runner=FnApiRunner", "--direct_num_workers=1"]
    # The second one copies the records that it does not reuse as a whole shard.
    for kept in (images, images - 1):
        made = rebuild(**places, verify=verify, shards=3, beam_options=options)
        assert made.outcome["records"] == kept
        assert len(crossed) > 10
        assert images_in(crossed) == 0
        crossed.clear()
        next(source.glob("birds/*")).unlink()
    assert made.outcome["work"]["copied"]
