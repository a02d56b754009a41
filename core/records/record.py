"""The features of a record: their roles, by name or from a dataset of Shardwright, and their values."""

from __future__ import annotations

import base64
import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from shardwright.core import storage
from shardwright.core.records.encodings import plain_feature
from shardwright.schemas.byte_range import BASE64, STORED, ByteRange
from shardwright.schemas.dataset import (
    SHARDS_DIR,
    Dataset,
    PictureShape,
    Shard,
    picture_shape,
    sample_types,
    stored_format,
)
from shardwright.schemas.example import LENGTH, Feature, FeatureType, ParsedExample, fields_in, read_varint
from shardwright.schemas.feature_roles import BOX_SIDES, FLAGS, IMAGE_ROLES, PIXEL_MASKS
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.layouts import LAYOUTS, Encoding, FeatureRole, FeatureSpec, Layout
from shardwright.schemas.ledger import Entry, written_entries

SOURCE_ID = "image/source_id"

#: Names of features by role in layouts of several tools, the most common first.
_USUAL_NAMES: Mapping[FeatureRole, tuple[str, ...]] = {
    FeatureRole.ENCODED: (
        "image/encoded", "image_raw", "image/image_raw", "image_bytes", "image/raw", "image",
        "jpg", "jpeg", "png", "webp", "img", "img_raw", "encoded", "encoded_image", "image_encoded",
        "image/data", "image_data", "data", "raw", "pixels", "x", "feature", "features",
    ),
    FeatureRole.KEY: ("image/filename", "filename", "file_name", "image_name", "image/name"),
    FeatureRole.SOURCE_ID: (SOURCE_ID, "image/id", "image_id"),
    FeatureRole.LABEL: (
        "image/class/label", "label", "labels", "image/label", "class/label", "class_id", "label_id", "class",
        "target", "y", "image/class", "category_id",
    ),
    FeatureRole.LABEL_TEXT: (
        "image/class/text", "label_text", "label_name", "class_name", "class/text", "class_text", "category",
        "name",
    ),
    FeatureRole.SYNSET: ("image/class/synset", "synset", "wnid"),
    FeatureRole.HEIGHT: ("image/height", "height", "image_height", "rows", "h"),
    FeatureRole.WIDTH: ("image/width", "width", "image_width", "cols", "w"),
    FeatureRole.CHANNELS: ("image/channels", "channels", "image_channels", "depth", "image/depth", "c"),
    FeatureRole.SHAPE: ("shape", "image/shape", "image_shape", "data_shape"),
    FeatureRole.CAPTION: ("image/caption", "caption", "captions", "txt"),
    FeatureRole.SEMANTIC_MASK: (
        "image/segmentation/class/encoded", "segmentation_mask", "mask", "image/mask", "mask_raw",
    ),
    FeatureRole.BOXES: ("objects/bbox",),  # in TFDS, ymin, xmin, ymax, xmax of all objects in one list
    FeatureRole.OBJECT_LABEL: (
        "image/object/class/label", "image/object/bbox/label", "objects/label", "objects/label_id",
    ),
    FeatureRole.OBJECT_CROWD: ("image/object/is_crowd", "objects/is_crowd"),
    FeatureRole.OBJECT_AREA: ("image/object/area", "image/object/segment/area", "objects/area"),
    FeatureRole.OBJECT_MASK: ("image/object/mask", "image/segmentation/object"),
    **{role: (f"image/object/{flag}", f"objects/is_{flag}") for flag, role in FLAGS.items()},
}  # fmt: skip
#: These names, and those in the layouts of Shardwright.
_NAMES: Mapping[FeatureRole, tuple[str, ...]] = {
    role: (
        *_USUAL_NAMES.get(role, ()),
        *(spec.name for layout in LAYOUTS.values() for spec in layout.features if spec.fill is role),
    )
    for role in FeatureRole
}
#: Features that may name the image, besides their role, the likeliest first.
_FILE_NAMES = (
    "image/filename", SOURCE_ID, "filename", "file_name", "image_name", "image/name", "__key__",
    "key", "image_id", "image/id", "image/path", "path", "filepath", "image_uri", "id",
)  # fmt: skip
#: Prefix that some tools add to every name.
_PREFIX = re.compile(r"\A(?:train|val|validation|test)/")
#: Largest number of bytes in a name that becomes a key.
MAX_NAME = 1024
#: Masks of all pixels, and the names of their places in `Annotations`.
MASK_PLACES = {
    FeatureRole.SEMANTIC_MASK: "semantic_place",
    FeatureRole.PANOPTIC_CATEGORY: "category_place",
    FeatureRole.PANOPTIC_INSTANCE: "instance_place",
}
#: Largest number of bytes in a class name.
_MAX_CLASS_NAME = 1000
#: Number of bytes of a value that are searched first.
_HEAD = 64
#: Largest number of features of a record, and of values of a feature.
MAX_FEATURES, _MAX_VALUES = 100_000, 1 << 20


@dataclass(frozen=True)
class FeatureNames:
    """Names of a record's features by role.

    Attributes:
      by_role: Mapping of role to the features that may have it, the likeliest first.
      file_names: Features that may name the image, the likeliest first.
      others: Features with unknown names; one of them may contain the image.
      encoded: Features with an encoding other than plain, by name.
    """

    by_role: Mapping[FeatureRole, tuple[str, ...]]
    file_names: tuple[str, ...]
    others: tuple[str, ...] = ()
    encoded: Mapping[str, FeatureSpec] = field(default_factory=dict)

    @property
    def images(self) -> tuple[str, ...]:
        """Features that may contain the image, the likeliest first."""
        return self.by_role.get(FeatureRole.ENCODED, ())

    @property
    def boxes(self) -> tuple[FeatureRole, ...]:
        """Roles of the boxes: xmin, ymin, xmax, ymax, or one with four values for each object; or none."""
        if self.by_role.keys() >= set(BOX_SIDES):
            return BOX_SIDES
        return (FeatureRole.BOXES,) if FeatureRole.BOXES in self.by_role else ()


@lru_cache(maxsize=64)
def names_by_role(names: tuple[str, ...]) -> FeatureNames:
    """Returns the roles of features, detected from their names."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(_PREFIX.sub("", name.lower()), name)

    def every(candidates: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(plain[name] for name in candidates if name in plain))

    by_role = {role: present for role, candidates in _NAMES.items() if (present := every(candidates))}
    images_and_masks = {name for role in IMAGE_ROLES for name in by_role.get(role, ())}
    others = tuple(sorted(name for name in names if name not in images_and_masks))
    return FeatureNames(by_role, every(_FILE_NAMES), others)


def names_of_specs(specs: Sequence[FeatureSpec]) -> FeatureNames:
    """Returns the roles of features as a dataset of Shardwright defines them."""
    by_role: dict[FeatureRole, tuple[str, ...]] = {}
    for spec in specs:
        if spec.fill is not None:
            by_role.setdefault(spec.fill, (spec.name,))
    names = (*by_role.get(FeatureRole.KEY, ()), *by_role.get(FeatureRole.FILE_BASENAME, ()))
    encoded = {spec.name: spec for spec in specs if spec.encoding is not Encoding.PLAIN}
    return FeatureNames(by_role, names, encoded=encoded)


class NotAnExample(ValueError):
    """The message is well formed, but it is not a `tf.train.Example`."""


def _check_entries(data: bytes) -> None:
    """Checks that a message has not too many features, which would take much more memory than their bytes.

    Raises:
      NotAnExample: If it is a SequenceExample.
      ValueError: If it has too many.
    """
    count = 0
    with contextlib.suppress(IndexError):  # the parser reports it
        for field, wire, begin, end in fields_in(data, 0, len(data)):
            if (field, wire) == (2, LENGTH):
                raise NotAnExample("it is a tf.train.SequenceExample")
            if (field, wire) == (1, LENGTH) and len(data) > 2 * MAX_FEATURES:  # each takes two bytes
                count += sum(1 for _ in islice(fields_in(data, begin, end), MAX_FEATURES + 1))
            if count > MAX_FEATURES:
                raise ValueError(f"it has more than {MAX_FEATURES:,} features")


class SourceRecord(ParsedExample):
    """Decoded features of a record. An empty name stands for a feature that records do not have.

    Records may come from anywhere, so the number of features and values is limited.

    Args:
      data: Serialized record.
      names: Roles of its features, as its dataset says; None to detect them from their names.

    Attributes:
      data: Serialized record.
      names: Roles of its features.

    Raises:
      NotAnExample: If the record is a SequenceExample.
      ValueError: If the record is malformed.
    """

    __slots__ = ("data", "names")

    def __init__(self, data: bytes, names: FeatureNames | None = None) -> None:
        _check_entries(data)
        super().__init__(data)
        self.data = data
        self.names = names or names_by_role(tuple(self.features))

    def name(self, role: FeatureRole) -> str:
        """Returns the likeliest feature with a role; empty if there is none."""
        return next(iter(self.names.by_role.get(role, ())), "")

    def _stored(self, name: str) -> Feature:
        """Returns a feature with its values as they are stored.

        Raises:
          ValueError: If it has too many values.
        """
        content = self.list_in(name)[1]
        if content is not None and len(content.value) > _MAX_VALUES:
            raise ValueError(f"feature {name!r} has too many values, more than {_MAX_VALUES:,}")
        return super().feature(name)

    def feature(self, name: str) -> Feature:
        """Returns a feature with its values.

        Raises:
          ValueError: If the feature does not match its encoding, or has too many values.
        """
        spec, feature = self.names.encoded.get(name), self._stored(name)
        if spec is None:
            return feature
        is_stored = feature.type is FeatureType.BYTES and feature.values
        return plain_feature(spec, feature) if is_stored else Feature(None, [])

    def parts_of(self, name: str) -> list[ByteRange]:
        """Returns where the values in a list of bytes are in the record, also within a serialized tensor.

        Equal bytes before them serve as well, because the place is only read.

        Raises:
          ValueError: If the feature does not match its encoding, or has too many values.
        """
        if self.list_in(name)[0] is not FeatureType.BYTES:
            return []
        encoding = spec.encoding if (spec := self.names.encoded.get(name)) else Encoding.PLAIN
        method = BASE64 if encoding is Encoding.BASE64 else STORED
        has_texts = encoding is Encoding.TENSOR and spec and spec.dtype == "object"
        parts, end = list[ByteRange](), 0
        for value in (self.feature(name) if has_texts else self._stored(name)).values:
            begin = self._find(value, end)
            end = begin + len(value)
            parts.append(ByteRange("", begin, len(value), method))
        return parts

    def packed(self, name: str) -> ByteRange | None:
        """Returns where the numbers of a feature are in the record; None if they are not in one piece.

        Floats have 32 bits each; integers are varints.
        """
        data = self.list_in(name)[1].SerializeToString()  # a tag, the number of bytes, and the numbers
        length, begin = read_varint(data, 1) if data else (0, 0)
        place = self._find(data)
        return ByteRange("", place + begin, length) if data and place >= 0 else None

    def inside(self, part: ByteRange, value: bytes) -> ByteRange:
        """Returns where bytes are that a part contains."""
        return part._replace(offset=self._find(value, part.offset), length=len(value))

    def _find(self, value: bytes, start: int = 0) -> int:
        """Returns the position of bytes after `start`; -1 if they are not there."""
        begin = self.data.find(value[:_HEAD], start)  # searching for many bytes takes longer
        return begin if self.data.startswith(value, begin) else self.data.find(value, begin)

    def only_part(self, name: str) -> ByteRange | None:
        """Returns where the only value in a list of bytes is; None if it has none or several.

        Raises:
          ValueError: If the feature is malformed.
        """
        parts = self.parts_of(name)
        return parts[0] if len(parts) == 1 else None

    def stored(self, part: ByteRange) -> bytes:
        """Returns the bytes of a part as they are stored."""
        return self.data[part.offset : part.offset + part.length]

    def size_of(self, part: ByteRange) -> int:
        """Returns the number of decoded bytes in a part."""
        if part.method != BASE64:
            return part.length
        end = part.offset + part.length
        return part.length // 4 * 3 - self.data.count(b"=", max(part.offset, end - 2), end)

    def value_of(self, part: ByteRange) -> bytes:
        """Returns the decoded bytes of a part.

        Raises:
          ValueError: If they do not match their encoding.
        """
        data = self.stored(part)
        return base64.b64decode(data, b"-_", validate=True) if part.method == BASE64 else data

    def numbers(self, role: FeatureRole) -> Sequence[Any]:
        """Returns the numbers of the feature with a role; none if the feature is missing.

        Raises:
          ValueError: If the feature has bytes.
        """
        feature = self.feature(self.name(role))
        if feature.type is FeatureType.BYTES:
            raise ValueError(f"its feature {self.name(role)!r} is not a list of numbers")
        return feature.values

    def texts(self, role: FeatureRole) -> list[str]:
        """Returns the class names in the feature with a role; none if it has no bytes.

        Raises:
          ValueError: If a value cannot be a class name.
        """
        texts = []
        name = self.name(role)
        kind, values = self.feature(name)
        for value in values if kind is FeatureType.BYTES else ():
            if len(value) > _MAX_CLASS_NAME:
                raise ValueError(f"its feature {name!r} has {len(value)} bytes, which is not a class name")
            try:
                text = str(value, "utf-8")
            except UnicodeDecodeError:
                raise ValueError(f"its feature {name!r} is not UTF-8 text") from None
            if LABEL_SEPARATOR in text:
                raise ValueError(f"its feature {name!r} holds the control character U+001F")
            texts.append(text)
        return texts

    def text(self, role: FeatureRole) -> str:
        """Returns the only value of the feature with a role; empty if there is none or no short text."""
        values = self.feature(self.name(role)).values
        value = values[0] if len(values) == 1 else None
        if isinstance(value, int):
            return str(value)
        try:
            return str(value, "utf-8") if isinstance(value, bytes) and len(value) <= MAX_NAME else ""
        except UnicodeDecodeError:
            return ""


@dataclass(frozen=True)
class KnownRecords:
    """What is known about the records of a file before they are read.

    Nearly all of it is from the `dataset.json` of Shardwright. Records of other tools have the defaults.

    Attributes:
      feature_names: Names of the features by role; None if the records do not belong to such a dataset.
      names: Class names by id, from the dataset or from a file beside the records.
      first_label: Id of the first class.
      raw: Whether the images are raw pixels.
      picture: Height, width and channels of all images; None for values that vary or are in the records.
      columns: Mapping of column of the source to the feature that contains it, if it has another name.
      dtypes: Types of the images' samples; float32 is always stored as raw pixels.
      count: Number of records in one of its shards; -1 if no shard is being read.
      keys_by_offset: Mapping of byte offset of a record in this shard to key, from the ledger.
      keys_by_name: Mapping of file name in a record to key, for names that only one record has. It is needed
        after damage, where the byte offsets of records may differ from the ledger.
    """

    feature_names: FeatureNames | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    first_label: int = 0
    raw: bool = False
    picture: PictureShape = (None, None, None)
    columns: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("uint8",)
    count: int = -1
    keys_by_offset: Mapping[int, str] = field(default_factory=dict)
    keys_by_name: Mapping[str, str] = field(default_factory=dict)

    def id_shift(self, layout: Layout) -> int:
        """Returns the number to add to class ids, so that the first class gets the layout's first id.

        It is 0 for records of other tools, and for layouts with masks, because the pixels of masks are ids
        and are not changed.
        """
        stay = self.feature_names is None or any(spec.fill in PIXEL_MASKS for spec in layout.features)
        return 0 if stay else layout.first_label - self.first_label


def own_records(dataset: Dataset, layout: Layout, path: str = "") -> KnownRecords:
    """Returns the description of a dataset's records.

    Args:
      dataset: Dataset of Shardwright.
      layout: Layout of the records to write.
      path: Path of the shard to read, if any.
    """
    shard = next((shard for shard in dataset.shards if shard.file == path.rpartition("/")[2]), None)
    features, names = dataset.features, dataset.labels
    if dataset.plan.texts and FeatureRole.SYNSET not in layout.by_role:
        # Texts are better names than synset ids, unless two classes share one, as "crane" in ImageNet.
        texts = tuple(text or name for name, text in zip(names, dataset.plan.texts, strict=True))
        if len(set(texts)) == len(texts):
            names = texts
        else:
            features = tuple(spec for spec in features if spec.fill is not FeatureRole.LABEL_TEXT)
    written = _entries_of_shard(path, shard) if shard else []
    counts = Counter(entry.name_in_record for entry in written)
    return KnownRecords(
        feature_names=names_of_specs(features),
        names=dict(enumerate(names, dataset.first_label)),
        first_label=dataset.first_label,
        raw=stored_format(dataset) == "raw",
        picture=picture_shape(dataset.plan.settings),
        columns={spec.column or spec.name: spec.name for spec in features if spec.fill is FeatureRole.EXTRA},
        dtypes=sample_types(dataset),
        count=shard.records if shard else -1,
        keys_by_offset={entry.offset: entry.key for entry in written if entry.offset is not None},
        keys_by_name={
            entry.name_in_record: entry.key for entry in written if counts[entry.name_in_record] == 1
        },
    )


def _entries_of_shard(path: str, shard: Shard) -> list[Entry]:
    """Returns the entries of a shard; none if its ledger is missing or belongs to another file."""
    folder, _, file = path.rpartition("/")
    ledger = storage.join(folder or ".", f"{SHARDS_DIR}/{file.partition('.tfrecord')[0]}.jsonl.gz")
    data = storage.read_if_exists(ledger)
    with contextlib.suppress(ValueError):
        return list(written_entries(data, shard.sha256)) if data is not None else []
    return []
