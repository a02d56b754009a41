"""Single steps in a custom pipeline, with Beam's own writer."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from helpers.fewer_imports import late
from helpers.repository import PHOTOS, ROOT
from helpers.tensorflow_records import read_records

from shardwright.schemas.codes import QuarantineReason
from shardwright.transforms import BuildExamples, DecodeAndResize, ReadImages

tf = late("tensorflow")


def test_the_steps_compose_with_the_stock_writer_and_real_messages(tmp_path: Path) -> None:
    (tmp_path / "birds").mkdir()
    broken = tmp_path / "birds" / "broken.jpg"
    broken.write_bytes((PHOTOS / "birds" / "owl.jpg").read_bytes()[:900])
    paths = [str(path) for path in sorted((PHOTOS / "birds").iterdir())]

    def check(quarantined: list) -> None:
        (entry,) = quarantined
        assert (entry.uri, entry.reason) == (str(broken), QuarantineReason.TRUNCATED)

    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        examples, quarantined = (
            pipeline
            | beam.Create([*paths, str(broken)])
            | ReadImages()
            | DecodeAndResize(resize=48, fit="pad", image_format="png")
            | BuildExamples(labels=["birds", "fruit"], as_proto=True)
        )
        _ = examples | beam.io.WriteToTFRecord(
            str(tmp_path / "out"), coder=beam.coders.ProtoCoder(tf.train.Example), num_shards=2
        )
        assert_that(quarantined, check)
    names = set()
    for record in read_records(sorted(tmp_path.glob("out-*"))):
        feature = tf.train.Example.FromString(record).features.feature
        names.add(feature["image/filename"].bytes_list.value[0].decode())
        assert tf.io.decode_png(feature["image/encoded"].bytes_list.value[0]).shape == (48, 48, 3)
        assert feature["image/class/label"].int64_list.value == [0]
    assert len(names) == len(paths)


def test_the_example_pipeline_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = str(ROOT / "examples" / "custom_pipeline.py")
    monkeypatch.setattr(sys, "argv", [script, str(PHOTOS), str(tmp_path / "out")])
    runpy.run_path(script, run_name="__main__")
    assert len(read_records(tmp_path.glob("out-*"))) == 61
