"""`dataset.json`: the commit of a dataset, written last and read first."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

from shardwright.schemas.codes import Outcome
from shardwright.schemas.errors import UsageError
from shardwright.schemas.json_values import fields_json, from_json, to_json
from shardwright.schemas.layouts import FeatureRole, FeatureSpec, Layout, layout_by_name, pixel_type_of
from shardwright.schemas.plain_text import escape_controls
from shardwright.schemas.plan import Plan, ShardPlace, index_file, is_compressed, ledger_file, settings_json
from shardwright.schemas.provenance import Provenance
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.splits import SplitBalance, SplitShares, by_split, compare_splits, totals_of
from shardwright.schemas.units import SAME_SIZE_FITS, parse_resize

FORMAT_VERSION = 1
#: Version of the code that computes what a dataset states about itself: the files in `SIDECARS`, the features
#: of a layout, the recipes and plan digests of shards. If a dataset has this version, validation computes
#: these again and compares. Raise the number whenever one of them changes for the same dataset
#: (`tests/core/validation/test_dataset_json.py` detects this).
STATEMENTS_VERSION = 3
DATASET_JSON = "dataset.json"
DATASET_INFO_JSON = "dataset_info.json"
README_MD = "README.md"
LABELS_TXT = "labels.txt"
LABEL_MAP_PBTXT = "label_map.pbtxt"
QUARANTINE_JSONL = "quarantine.jsonl"
#: The records of a damaged dataset that could not be saved.
LOST_JSONL = "lost.jsonl"
FINDINGS_JSON = "findings.json"
STATISTICS_JSON = "statistics.json"
STATS_PB = "stats.pb"
REPORT_HTML = "report.html"
RUN_JSON = "run.json"
WORK_DIR = "_work"
SHARDS_DIR = "_shards"
INDEX_DIR = "_index"
CARD_DIR = "_card"
#: Picture in the dataset card. Its name begins with a dot, so that nobody takes it for an image to convert.
SAMPLES_JPG = f"{CARD_DIR}/.samples.jpg"
OUTCOME_JSON = f"{WORK_DIR}/outcome.json"
#: The lease of the process that writes to the directory; it exists only while one does.
WRITER_JSON = f"{WORK_DIR}/lease.json"
#: Field of a JSON document with the sha256 of the canonical JSON of all its other fields.
DIGEST = "digest"
#: Files by which readers open a dataset; TFDS uses the second. They are removed in this order before a shard
#: is replaced.
COMMIT_FILES = (DATASET_JSON, DATASET_INFO_JSON)


@dataclass(frozen=True)
class Shard:
    """One shard file: its name in the dataset directory, its number of records and bytes, and its sha256."""

    file: str
    records: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class _Totals:
    """The totals in `Dataset.ledger`, and in each of its splits."""

    listed: int
    written: int
    quarantined: int
    filtered: int
    deduplicated: int


@dataclass(frozen=True)
class _Ledger(_Totals):
    """The fields of `Dataset.ledger`."""

    splits: Mapping[str, _Totals]
    reasons: Mapping[str, Mapping[str, int]]


#: Fields of the document that are absent if they are empty.
_OPTIONAL = ("dtypes", "provenance")


@dataclass(frozen=True)
class Dataset:
    """The contents of `dataset.json`.

    Attributes:
      name: Name of the dataset directory.
      plan: Plan that later builds continue. Its settings are those of the dataset.
      versions: Versions of the software that decides the bytes.
      layout: Name of the record layout.
      features: Features of each record.
      splits: Split -> shards in order.
      ledger: Counts per outcome, in total and per split.
      class_counts: Split -> class name -> number of records.
      first_label: Id of the first class.
      formats: Split -> format of the stored images (jpg, png, webp, raw) -> records.
      sidecars: File for other tools -> its sha256.
      dtypes: Type of the stored samples (uint8, uint16, float32) -> records, in all splits. Empty if the
        dataset does not state it, because all are uint8.
      provenance: What the user states about the dataset: license, creators and so on.
      files: Path of every other file that was published with the shards -> its sha256.
      statements_version: `STATEMENTS_VERSION` of the code that wrote it; 0 if it is not known.
    """

    name: str
    plan: Plan
    versions: Mapping[str, str]
    layout: str
    features: tuple[FeatureSpec, ...]
    splits: Mapping[str, tuple[Shard, ...]]
    ledger: Mapping[str, Any]
    class_counts: Mapping[str, Mapping[str, int]]
    first_label: int = 0
    formats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sidecars: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, int] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    files: Mapping[str, str] = field(default_factory=dict)
    statements_version: int = 0

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in the order of ids. The name of an unused id is its number (`Plan.unused_ids`)."""
        return self.plan.labels

    @property
    def classes(self) -> dict[int, str]:
        """Id -> class name, in the order of ids, without unused ids."""
        return self.plan.classes(self.first_label)

    @property
    def keeps_unlabelled(self) -> bool:
        """Whether images without a class are stored too, or images without a mask if records have one."""
        return self.plan.settings.get("unlabelled") == "keep"

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the dataset: its shards' checksums, labels and features."""
        sha256_of = {shard.file: shard.sha256 for shard in self.shards}
        return fingerprint(sha256_of, self.labels, to_json(self.features))

    @property
    def record_layout(self) -> Layout:
        """The layout of the records, by its name in the settings.

        Raises:
          UsageError: If there is no such layout.
        """
        return layout_by_name(str(self.plan.settings["layout"]))

    def spec(self, role: FeatureRole) -> FeatureSpec | None:
        """Returns the first feature with a role; None if there is none."""
        return next((spec for spec in self.features if spec.fill is role), None)

    def records(self, split: str) -> int:
        """Number of records of a split."""
        return sum(shard.records for shard in self.splits[split])

    @property
    def all_records(self) -> int:
        """Number of records of all splits."""
        return sum(map(self.records, self.splits))

    def size(self, split: str) -> int:
        """Number of bytes of the shards of a split."""
        return sum(shard.bytes for shard in self.splits[split])

    @property
    def bad_fraction(self) -> float:
        """Share of the images with faults in those that were tried."""
        bad, written = (int(self.ledger.get(name, 0)) for name in (Outcome.QUARANTINED, Outcome.WRITTEN))
        return bad / (bad + written) if bad else 0.0

    @property
    def balance(self) -> SplitBalance:
        """How the classes are spread over the splits."""
        return compare_splits(self.class_counts, {split: self.records(split) for split in self.splits})

    @property
    def split_shares(self) -> SplitShares | None:
        """How far the splits meet their shares; None if `--splits` alone decides them."""
        records = {split: self.records(split) for split in self.splits}
        return self.plan.split_shares(records, self.class_counts)

    @property
    def shards(self) -> list[Shard]:
        """All shards, in the order of `dataset.json`."""
        return [shard for shards in self.splits.values() for shard in shards]

    def placed_shards(self) -> Iterator[tuple[ShardPlace, Shard]]:
        """Yields each shard after its place."""
        for split, shards in self.splits.items():
            for number, shard in enumerate(shards):
                yield ShardPlace(split, number, len(shards)), shard

    def filled_shards_in_turn(self) -> list[tuple[ShardPlace, Shard]]:
        """Returns the shards that have records, like `placed_shards`, but the first of each split first."""
        filled = (placed for placed in self.placed_shards() if placed[1].records)
        return sorted(filled, key=lambda placed: placed[0].shard)

    def index_files(self, empty: bool = False) -> dict[str, str]:
        """Returns a mapping of shard to index; compressed shards have none.

        Args:
          empty: Whether to include shards without records, which need no index.
        """
        return {
            shard.file: index_file(*place)
            for place, shard in self.placed_shards()
            if not is_compressed(shard.file) and (shard.records or empty)
        }

    def ledger_files(self) -> dict[str, str]:
        """Returns a mapping of shard to ledger."""
        return {shard.file: ledger_file(*place) for place, shard in self.placed_shards()}

    def as_json(self) -> dict[str, Any]:
        """Returns the document as it is stored; its last field is the digest of the others."""
        value = {name: item for name, item in fields_json(self).items() if item or name not in _OPTIONAL}
        for split, shards in value["splits"].items():
            totals = {"records": self.records(split), "bytes": self.size(split)}
            value["splits"][split] = {**totals, "shards": shards}
        value["files"] = dict(sorted(value["files"].items()))
        first = {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "settings": settings_json(self.plan.settings),
            **{name: value[name] for name in ("plan", "versions", "layout", "features", "first_label")},
            "labels": list(self.labels),
        }
        return with_digest(first | value)

    @staticmethod
    def from_bytes(data: bytes, where: str) -> Dataset:
        """Reads the bytes of a stored document.

        Raises:
          UsageError: If they are not a `dataset.json` that this version can read.
        """
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            place = ""
            if isinstance(error, json.JSONDecodeError):
                place = f" (line {error.lineno}, column {error.colno})"
            raise UsageError(f"{where} is not JSON{place}; restore it or convert again.") from None
        version = value.get("format_version") if isinstance(value, Mapping) else None
        if version is None:
            raise UsageError(f"{where} is not a dataset.json of Shardwright; name one, or convert again.")
        if version != FORMAT_VERSION:
            raise UsageError(
                f"{where} has format_version {version!r}; this version of shardwright reads "
                f"{FORMAT_VERSION}. Use the version that wrote it, or convert again."
            )
        try:
            for content in value["splits"].values():
                for item in content["shards"]:
                    if "/" in item["file"] or item["file"] != escape_controls(item["file"]):
                        raise UsageError(
                            f"{where} lists a shard {item['file']!r}, a name that no shard has; restore it "
                            "or convert again."
                        )
            splits = {split: content["shards"] for split, content in by_split(value["splits"]).items()}
            from_json(_Ledger, value["ledger"])  # finds damage
            return from_json(Dataset, {**value, "splits": splits})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{where} is damaged ({error!r}); restore it or convert again.") from error


PictureShape = tuple[int | None, int | None, int | None]


def picture_shape(settings: Mapping[str, Any]) -> PictureShape:
    """Returns height, width and channels of all stored images; None for those that vary.

    Args:
      settings: Settings of a dataset's plan (`ConvertSettings.identity`).
    """
    height = width = None
    if settings["resize"] and settings["fit"] in SAME_SIZE_FITS:
        width, height = parse_resize(settings["resize"])
    channels = {"rgb": 3, "gray": 1}.get(settings["color"])
    if settings["image_format"] == "webp":
        channels = 3 if channels else None  # WebP has no gray images
    channels = settings.get("channels") or channels
    return height, width, channels


def stored_formats(dataset: Dataset) -> tuple[str, ...]:
    """Returns the formats in which pictures may be stored, as `--image_format` spells them.

    If originals are kept, these are the formats that the dataset counts.
    """
    counted = totals_of(dataset.formats)
    if counted and counted.total() == dataset.all_records:
        return tuple(sorted("jpeg" if name == "jpg" else name for name in counted))
    stored = str(dataset.plan.settings.get("image_format", "keep"))
    return ("jpeg", "png", "webp") if stored == "keep" else (stored,)


def sample_types(dataset: Dataset) -> tuple[str, ...]:
    """Returns the types of the pictures' samples, from the narrowest on; uint8 unless it states others."""
    stored = tuple(name for name in SAMPLE_TYPES if dataset.dtypes.get(name))
    return stored or (pixel_type_of(dataset.features) or "uint8",)


def stored_format(dataset: Dataset) -> str:
    """Returns the one format in which all pictures are stored; empty if there may be several."""
    formats = stored_formats(dataset)
    return formats[0] if len(formats) == 1 else ""


def canonical_json(value: Any) -> str:
    """Serializes JSON in the form that is compared and hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def strict_json(data: bytes) -> Any:
    """Parses a stored JSON document in which all readers find the same values.

    Python's parser also accepts a byte order mark, UTF-16, and names that occur twice, of which others may
    take the first.

    Raises:
      ValueError: If it is not such a document.
      RecursionError: If it is nested too deeply.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark")
    return json.loads(text, object_pairs_hook=_unique_names)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"it names {twice!r} twice")
    return members


def with_digest(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document with its own digest as the last field."""
    rest = {name: value for name, value in document.items() if name != DIGEST}
    return {**rest, DIGEST: hashlib.sha256(canonical_json(rest).encode("utf-8", "surrogatepass")).hexdigest()}


def has_own_digest(document: Mapping[str, Any]) -> bool:
    """Returns whether a document has its own digest."""
    return bool(document.get(DIGEST) == with_digest(document)[DIGEST])


class Document:
    """A small JSON file beside the datasets: the fields of a dataclass, and its `format_version`.

    Attributes:
      has_digest: Whether the file also has its own digest.
    """

    has_digest: ClassVar[bool] = False

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        document = {"format_version": FORMAT_VERSION, **to_json(self)}
        return pretty_json(with_digest(document) if self.has_digest else document)

    @classmethod
    def loads(cls, data: bytes) -> Self:
        """Reads a stored document.

        Raises:
          ValueError: If this version of the software cannot read it, or its digest is wrong.
        """
        try:
            document = strict_json(data)
            if document["format_version"] != FORMAT_VERSION:
                raise ValueError("it has another format_version")
            if cls.has_digest and not has_own_digest(document):
                raise ValueError(f"its fields are not those that its field {DIGEST!r} was made of")
            return from_json(cls, document)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error


def fingerprint(
    sha256_of: Mapping[str, str], labels: Sequence[str], features: Sequence[Mapping[str, Any]]
) -> str:
    """Returns the sha256 hex digest that identifies a dataset.

    It covers the sorted lines `file<TAB>sha256<LF>`, then the canonical JSON of
    `{"features": ..., "labels": ...}`.
    """
    digest = hashlib.sha256()
    for line in sorted(f"{file}\t{sha256}\n" for file, sha256 in sha256_of.items()):
        digest.update(line.encode())
    digest.update(canonical_json({"features": features, "labels": list(labels)}).encode())
    return digest.hexdigest()


def pretty_json(value: Any, ensure_ascii: bool = False) -> str:
    """Serializes JSON for files that people read."""
    text = io.StringIO()  # a list of all pieces, as `json.dumps` makes it, takes six times as much memory
    json.dump(value, text, indent=2, ensure_ascii=ensure_ascii)
    text.write("\n")
    return text.getvalue()
