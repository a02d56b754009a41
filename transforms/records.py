"""`BuildExamples`: records for any writer, including streaming ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from shardwright.core.images.annotate import annotate, read_mask
from shardwright.core.records.build import ExampleBuilder, check_labels, label_ids
from shardwright.schemas.codes import Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.ledger import Entry
from shardwright.transforms.images import ImageElement, step_settings

_QUARANTINED = "quarantined"


class BuildExamples(beam.PTransform):
    """Builds records. `PCollection[ImageElement] -> (PCollection[bytes], PCollection[Entry])`.

    The second result holds the images that were left out, each with source, stage and reason. The custom
    pipeline decides what to do with them.

    Args:
      labels: Class names in id order.
      layout: Name of the record layout.
      as_proto: Whether to yield `tf.train.Example` messages (needs TensorFlow) instead of their bytes.
      **settings: Settings of `shardwright convert` for a record: `bad_boxes`, `extra_columns`,
        `label_separator`, `unlabelled`, ...
    """

    def __init__(
        self,
        labels: Sequence[str],
        layout: str = "classification",
        as_proto: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._labels = tuple(labels)
        self._settings = step_settings({**settings, "layout": layout})
        self._as_proto = as_proto

    def expand(self, images: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        """Applies the transform."""
        built = images | "BuildExample" >> beam.ParDo(
            _BuildExample(self._labels, self._settings, self._as_proto)
        ).with_outputs(_QUARANTINED, main="examples")  # bytes or tf.train.Example; Entry
        return built.examples, built[_QUARANTINED]


class _BuildExample(beam.DoFn):
    def __init__(self, labels: Sequence[str], settings: ConvertSettings, as_proto: bool) -> None:
        self._settings = settings
        self._ids = label_ids(labels, settings.record_layout.first_label)
        self._as_proto = as_proto

    def setup(self) -> None:
        self._examples = ExampleBuilder(self._settings.record_layout, self._ids)

    def process(self, element: ImageElement) -> Iterator[Any]:
        fault = element.fault
        if fault is None:
            assert element.image is not None, "BuildExamples follows DecodeAndResize"
            try:
                check_labels(element.ref, self._settings.record_layout, self._ids)
                mask = read_mask(element.ref, self._settings)
                annotated = annotate(element.ref, element.image, self._settings, self._ids, mask)
                example = self._examples.build(element.ref, element.image, element.sha256, annotated.values)
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
