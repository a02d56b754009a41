"""Reads the description of records from a finished dataset of Shardwright."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.sources.tfrecord.layouts import FeatureNames, names_by_role, names_of_specs
from shardwright.core.sources.tfrecord.record import SourceRecord
from shardwright.schemas.dataset import (
    SHARDS_DIR,
    Dataset,
    PictureShape,
    picture_shape,
    sample_types,
    stored_format,
)
from shardwright.schemas.feature_roles import FEATURE_ROLES
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec, Layout, Needs
from shardwright.schemas.ledger import written_entries

_MASKS = (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)


@dataclass(frozen=True)
class OwnRecords:
    """Description of the records in a dataset, from its `dataset.json`.

    Attributes:
      features: Features and their roles.
      names: Class names by id.
      first_label: Id of the first class.
      raw: Whether the images are raw pixels.
      dtypes: Types of the images' samples; float32 is always stored as raw pixels.
      picture: Height, width and channels of all images; None for values that vary or are in the records.
      columns: Mapping of column of the source to the feature that contains it.
    """

    features: tuple[FeatureSpec, ...]
    names: Mapping[int, str]
    first_label: int
    raw: bool
    picture: PictureShape
    columns: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("uint8",)

    @cached_property
    def feature_names(self) -> FeatureNames:
        """Names of the features by role."""
        return names_of_specs(self.features)

    @cached_property
    def encoded(self) -> Mapping[str, FeatureSpec]:
        """Features with an encoding other than plain, by name."""
        return {spec.name: spec for spec in self.features if spec.encoding is not Encoding.PLAIN}

    @cached_property
    def has_keys(self) -> bool:
        """Whether records contain the keys of their images."""
        return any(spec.fill is FeatureRole.KEY for spec in self.features)

    def names_in(self, names: set[str]) -> FeatureNames:
        """Returns the roles of the features that given records can have.

        Optional features, such as masks, count only if they are in `names`. Features of objects always
        count, because images without objects may lack them.
        """

        def there(spec: FeatureSpec) -> bool:
            objects = spec.fill is not None and FEATURE_ROLES[spec.fill].needs is Needs.OBJECTS
            return not spec.optional or objects or spec.name in names

        return names_of_specs(filter(there, self.features))

    def id_shift(self, layout: Layout) -> int:
        """Returns the number to add to class ids, so that the first class gets the layout's first id.

        It is 0 for layouts with masks, because the pixels of masks are ids and are not changed.
        """
        stay = any(spec.fill in _MASKS for spec in layout.features)
        return 0 if stay else layout.first_label - self.first_label


def parse_record(data: bytes, own: OwnRecords | None) -> tuple[SourceRecord, FeatureNames]:
    """Returns a record, and the roles of its features: as its dataset says, or as their names tell.

    Raises:
      NotAnExample: If the record is a SequenceExample.
      ValueError: If the record is malformed.
    """
    if own:
        return SourceRecord(data, own.encoded), own.feature_names
    record = SourceRecord(data)
    return record, names_by_role(tuple(record.features))


def own_records(dataset: Dataset, layout: Layout) -> OwnRecords | None:
    """Returns the description of a dataset's records; None if it does not name the feature of the image.

    Args:
      dataset: Dataset of Shardwright.
      layout: Layout of the records to write.
    """
    if not any(spec.fill is FeatureRole.ENCODED for spec in dataset.features):
        return None
    features, names = dataset.features, dataset.labels
    if dataset.plan.texts and FeatureRole.SYNSET not in layout.by_role():
        # Texts are better names than synset ids, unless two classes share one, as "crane" in ImageNet.
        texts = tuple(text or name for name, text in zip(names, dataset.plan.texts, strict=True))
        if len(set(texts)) == len(texts):
            names = texts
        else:
            features = tuple(spec for spec in features if spec.fill is not FeatureRole.LABEL_TEXT)
    columns: dict[str, str] = {}
    for spec in dataset.features:
        if spec.fill is FeatureRole.EXTRA:
            columns.setdefault(spec.column or spec.name, spec.name)
    return OwnRecords(
        features=features,
        names=dict(enumerate(names, dataset.first_label)),
        first_label=dataset.first_label,
        raw=stored_format(dataset) == "raw",
        picture=picture_shape(dataset),
        columns=columns,
        dtypes=sample_types(dataset),
    )


class LedgerKeys(NamedTuple):
    """Keys of a shard's images, from its ledger.

    Attributes:
      by_offset: Mapping of byte offset of a record to key.
      by_name: Mapping of file name in a record to key, for names that only one record has. It is needed
        after damage, where the byte offsets of records may differ from the ledger.
    """

    by_offset: Mapping[int, str] = MappingProxyType({})
    by_name: Mapping[str, str] = MappingProxyType({})


def keys_of_shard(path: str, dataset: Dataset) -> LedgerKeys:
    """Returns the keys of a shard's images; empty if its ledger is missing or belongs to another file."""
    folder, _, file = path.rpartition("/")
    shards = (shard for shards in dataset.splits.values() for shard in shards)
    shard = next((shard for shard in shards if shard.file == file), None)
    if shard is None:
        return LedgerKeys()
    stem = file.partition(".tfrecord")[0]
    ledger = storage.join(folder or ".", f"{SHARDS_DIR}/{stem}.jsonl.gz")
    try:
        with storage.translated_errors("read", ledger):
            if not storage.exists(ledger):
                return LedgerKeys()
            data = storage.read_bytes(ledger)
        written = written_entries(data, shard.sha256)
    except ValueError:
        return LedgerKeys()
    names = Counter(entry.name_in_record for entry in written)
    return LedgerKeys(
        {entry.offset: entry.key for entry in written if entry.offset is not None},
        {entry.name_in_record: entry.key for entry in written if names[entry.name_in_record] == 1},
    )
