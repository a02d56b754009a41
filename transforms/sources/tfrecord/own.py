"""What a finished dataset of ours says of its records: nothing about them has to be guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from shardwright.schemas.dataset import SHARDS_DIR, Dataset, PictureShape, Shard, picture_shape, stored_format
from shardwright.schemas.feature_roles import FEATURE_ROLES
from shardwright.schemas.layouts import Encoding, FeatureRole, FeatureSpec, Layout, Needs
from shardwright.schemas.ledger import written_entries
from shardwright.transforms import storage
from shardwright.transforms.sources.tfrecord.layouts import FeatureNames, names_of_specs

_MASKS = (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)


@dataclass(frozen=True)
class OwnRecords:
    """What a `dataset.json` says of every record.

    Attributes:
      features: the features and their roles.
      names: class id -> class name.
      first_label: the id of the first class.
      raw: whether the images are bare pixels.
      picture: height, width and channels of all of them; None for what varies or records say.
      columns: of the source, by name: the feature that holds it.
    """

    features: tuple[FeatureSpec, ...]
    names: Mapping[int, str]
    first_label: int
    raw: bool
    picture: PictureShape
    columns: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def feature_names(self) -> FeatureNames:
        """The roles of the features."""
        return names_of_specs(self.features)

    @cached_property
    def encoded(self) -> Mapping[str, FeatureSpec]:
        """The features that are not plain, by name."""
        return {spec.name: spec for spec in self.features if spec.encoding is not Encoding.PLAIN}

    @cached_property
    def has_keys(self) -> bool:
        """Whether records say their image's key."""
        return any(spec.fill is FeatureRole.KEY for spec in self.features)

    def names_in(self, names: set[str]) -> FeatureNames:
        """Returns the roles of the features that some records have.

        Images without objects may lack all that belongs to objects; masks are looked for.
        """

        def there(spec: FeatureSpec) -> bool:
            objects = spec.fill is not None and FEATURE_ROLES[spec.fill].needs is Needs.OBJECTS
            return not spec.optional or objects or spec.name in names

        return names_of_specs(filter(there, self.features))

    def id_shift(self, layout: Layout) -> int:
        """Returns what is added to class ids so that the first class stays the first.

        The pixels of masks are ids, and stay as they are: then all do.
        """
        stay = any(spec.fill in _MASKS for spec in layout.features)
        return 0 if stay else layout.first_label - self.first_label


def own_records(dataset: Dataset, layout: Layout) -> OwnRecords | None:
    """Returns what a dataset says of its records; None if it does not say which feature is the image.

    Args:
      dataset: of ours.
      layout: of the records to be written.
    """
    if not any(spec.fill is FeatureRole.ENCODED for spec in dataset.features):
        return None
    features, names = dataset.features, dataset.labels
    if dataset.plan.texts and FeatureRole.SYNSET not in layout.by_role():
        # Texts are better names than synset ids, unless two classes share one, as "crane" does in ImageNet.
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
    )


class LedgerKeys(NamedTuple):
    """The keys of a shard's images, as its ledger says.

    Attributes:
      by_offset: where a record begins -> its key.
      by_name: the file name in a record -> its key, where only one record has that name. Behind damage the
        records no longer stand where the ledger says.
    """

    by_offset: Mapping[int, str] = MappingProxyType({})
    by_name: Mapping[str, str] = MappingProxyType({})


def keys_of_shard(path: str, dataset: Dataset) -> LedgerKeys:
    """Returns the keys of a shard's images.

    Empty where the shard has no ledger, or one that is not its own.
    """
    folder, _, file = path.rpartition("/")
    shard = _shard_named(dataset, file)
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


def _shard_named(dataset: Dataset, file: str) -> Shard | None:
    return next((shard for shards in dataset.splits.values() for shard in shards if shard.file == file), None)
