"""`BuildExamples`: records for a writer of one's own choice, streaming ones too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from shardwright.schemas.codes import Outcome
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.layouts import layout_by_name
from shardwright.schemas.ledger import Entry
from shardwright.transforms.images.transforms import ImageElement
from shardwright.transforms.records.build import build_example, label_ids

_QUARANTINED = "quarantined"


class BuildExamples(beam.PTransform):
    """Builds records. `PCollection[ImageElement] -> (PCollection[bytes], PCollection[Entry])`.

    The second result are the images left out, each with source, stage and reason: whoever composes
    a pipeline of their own decides what becomes of them.

    Args:
      labels: class names in id order.
      layout: the record layout's name.
      as_proto: yield real `tf.train.Example` messages (TensorFlow is needed) instead of their bytes.
    """

    def __init__(self, labels: Sequence[str], layout: str = "classification", as_proto: bool = False) -> None:
        super().__init__()
        self._labels = tuple(labels)
        self._layout = layout_by_name(layout)
        self._as_proto = as_proto

    def expand(self, images: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Applies the transform."""
        built = images | "BuildExample" >> beam.ParDo(
            _BuildExample(self._labels, self._layout.name, self._as_proto)
        ).with_outputs(_QUARANTINED, main="examples")  # bytes or tf.train.Example; Entry
        return built.examples, built[_QUARANTINED]


class _BuildExample(beam.DoFn):
    def __init__(self, labels: Sequence[str], layout: str, as_proto: bool) -> None:
        self._layout = layout_by_name(layout)
        self._ids = label_ids(labels, self._layout.first_label)
        self._as_proto = as_proto

    def process(self, element: ImageElement) -> Iterator[Any]:
        fault = element.fault
        if fault is None:
            assert element.image is not None, "BuildExamples follows DecodeAndResize"
            try:
                example = build_example(element.ref, element.image, element.sha256, self._layout, self._ids)
                yield self._message(example) if self._as_proto else example
                return
            except ImageFault as error:
                fault = error
        yield beam.pvalue.TaggedOutput(
            _QUARANTINED,
            Entry(
                key=element.ref.key,
                outcome=Outcome.QUARANTINED,
                fingerprint=element.ref.fingerprint,
                sha256=element.sha256,
                label=element.ref.label,
                reason=fault.reason,
                stage=fault.stage,
                message=fault.message,
                uri=element.ref.uri,
            ),
        )

    @staticmethod
    def _message(example: bytes) -> Any:
        import tensorflow as tf

        return tf.train.Example.FromString(example)
